; Counts words: makes a text of random words, splits it, and counts them.

(define seed 42)
(define (chance below)
  (set! seed (remainder (+ (* seed 1103515245) 12345) 2147483648))
  (remainder (quotient seed 65536) below))

(define vocabulary
  '("the" "ship" "line" "mark" "sea" "deep" "loaded" "hull" "anyone" "can" "read" "it"))

; The first words are more likely than the last.
(define (any-word)
  (list-ref vocabulary (chance (+ 1 (chance 12)))))

(define (any-text count)
  (string-join (map (lambda (number) (any-word)) (iota count)) " "))

; Counts are pairs of a word and its count. Returns them with the word counted once more.
(define (count-word counts word)
  (if (null? counts)
      (list (cons word 1))
      (if (equal? (car (car counts)) word)
          (cons (cons word (+ 1 (cdr (car counts)))) (cdr counts))
          (cons (car counts) (count-word (cdr counts) word)))))

(define words (string-split (any-text 5000)))
(define counts (fold count-word '() words))
(define most-frequent
  (fold (lambda (most count) (if (< (cdr most) (cdr count)) count most)) (car counts) counts))

(print "the most frequent of " (length words) " words: " (car most-frequent))
(assert (= (length words) 5000))
(assert (= (fold + 0 (map cdr counts)) 5000))
(assert (equal? (car most-frequent) "the"))
