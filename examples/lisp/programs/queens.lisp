; Counts the placements of 8 queens in which none attacks another.

(define (safe? column distance placed)
  (if (null? placed)
      #t
      (if (= (car placed) column)
          #f
          (if (= (abs (- (car placed) column)) distance)
              #f
              (safe? column (+ distance 1) (cdr placed))))))

; Returns `ways` and the placements that extend `placed` by a queen in the next row.
(define (extend ways placed)
  (fold (lambda (ways column)
          (if (safe? column 1 placed) (cons (cons column placed) ways) ways))
        ways
        (iota 8)))

(define (show placed)
  (for-each
    (lambda (column)
      (print (string-join
               (map (lambda (at) (if (= at column) "Q" ".")) (iota 8))
               " ")))
    placed))

; Each placement is a list of columns that begins with the last row's. The collector runs between
; forms, so each row has one.
(define ways (list '()))
(set! ways (fold extend '() ways))
(set! ways (fold extend '() ways))
(set! ways (fold extend '() ways))
(set! ways (fold extend '() ways))
(set! ways (fold extend '() ways))
(set! ways (fold extend '() ways))
(set! ways (fold extend '() ways))
(set! ways (fold extend '() ways))

(print "8 queens: " (length ways) " ways, one of them")
(show (car ways))
(assert (= (length ways) 92))
