; Counts words: makes a text of a few random words, reads it, and counts them in a table.

(define seed 42)
(define (chance below)
  (set! seed (remainder (+ (* seed 1103515245) 12345) 2147483648))
  (remainder (quotient seed 65536) below))

(define vocabulary
  '("the" "ship" "line" "mark" "sea" "deep" "loaded" "hull" "anyone" "can" "read" "it"))

; The first words are more likely than the last.
(define (any-word)
  (list-ref vocabulary (min (chance 12) (chance 12))))

(define (any-text count)
  (let loop ((count count) (words '()))
    (if (= count 0)
        (string-join words " ")
        (loop (- count 1) (cons (any-word) words)))))

(define (split text)
  (let ((end (string-length text)))
    (let loop ((at 0) (from 0) (words '()))
      (cond ((= at end)
             (reverse (if (= from at) words (cons (substring text from at) words))))
            ((char-whitespace? (string-ref text at))
             (loop (+ at 1)
                   (+ at 1)
                   (if (= from at) words (cons (substring text from at) words))))
            (else (loop (+ at 1) from words))))))

(define (count-words words)
  (define counts (make-table))
  (for-each (lambda (word)
              (table-set! counts word (+ 1 (table-ref counts word 0))))
            words)
  counts)

(define words (split (any-text 5000)))
(define counts (count-words words))
(define by-count
  (sort (map (lambda (word) (cons word (table-ref counts word))) (table-keys counts))
        (lambda (a b)
          (or (> (cdr a) (cdr b))
              (and (= (cdr a) (cdr b)) (string<? (car a) (car b)))))))

(print "the most frequent of " (length words) " words:")
(for-each (lambda (pair) (print "  " (cdr pair) " " (car pair)))
          (list (car by-count) (cadr by-count) (caddr by-count)))
(assert (= (length words) 5000))
(assert (= (fold + 0 (map cdr by-count)) 5000))
