; Counts the placements of n queens in which none attacks another.

(define (safe? column distance placed)
  (or (null? placed)
      (let ((other (car placed)))
        (and (not (= other column))
             (not (= (abs (- other column)) distance))
             (safe? column (+ distance 1) (cdr placed))))))

; Returns all placements, each a list of columns that begins with the last row's.
(define (queens n)
  (let rows ((left n))
    (if (= left 0)
        (list '())
        (fold (lambda (ways placed)
                (let columns ((column n) (ways ways))
                  (cond ((= column 0) ways)
                        ((safe? column 1 placed)
                         (columns (- column 1) (cons (cons column placed) ways)))
                        (else (columns (- column 1) ways)))))
              '()
              (rows (- left 1))))))

(define (show placed)
  (for-each
    (lambda (column)
      (print (string-join
               (map (lambda (at) (if (= at column) "Q" "."))
                    (map (lambda (at) (+ at 1)) (iota (length placed))))
               " ")))
    placed))

(define ways (queens 8))
(print "8 queens: " (length ways) " ways, one of them")
(show (car ways))
(assert (= (length ways) 92))
(assert (equal? (map (lambda (n) (length (queens n))) '(1 2 3 4 5 6 7)) '(1 0 0 2 10 4 40)))
