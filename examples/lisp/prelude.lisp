; The functions of every script that are written in Lisp.

(define (null? value) (equal? value '()))

(define (abs number) (if (< number 0) (- 0 number) number))

(define (fold f all list)
  (if (null? list)
      all
      (fold f (f all (car list)) (cdr list))))

(define (reverse list)
  (fold (lambda (reversed value) (cons value reversed)) '() list))

(define (map f list)
  (reverse (fold (lambda (mapped value) (cons (f value) mapped)) '() list)))

(define (for-each f list)
  (fold (lambda (nothing value) (f value)) '() list))

(define (length list)
  (fold (lambda (count value) (+ count 1)) 0 list))

(define (list-ref list at)
  (if (= at 0) (car list) (list-ref (cdr list) (- at 1))))

; Returns the integers below `count`, followed by `list`.
(define (below count list)
  (if (= count 0) list (below (- count 1) (cons (- count 1) list))))
(define (iota count) (below count '()))
