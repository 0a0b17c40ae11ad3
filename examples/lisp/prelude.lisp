; The functions of every script that are written in Lisp.

(define (caar list) (car (car list)))
(define (cadr list) (car (cdr list)))
(define (cddr list) (cdr (cdr list)))
(define (caddr list) (car (cdr (cdr list))))

(define (map f list)
  (let loop ((rest list) (mapped '()))
    (if (null? rest)
        (reverse mapped)
        (loop (cdr rest) (cons (f (car rest)) mapped)))))

(define (for-each f list)
  (unless (null? list)
    (f (car list))
    (for-each f (cdr list))))

(define (filter wanted? list)
  (let loop ((rest list) (kept '()))
    (cond ((null? rest) (reverse kept))
          ((wanted? (car rest)) (loop (cdr rest) (cons (car rest) kept)))
          (else (loop (cdr rest) kept)))))

(define (fold f all list)
  (if (null? list)
      all
      (fold f (f all (car list)) (cdr list))))

(define (iota count)
  (let loop ((number (- count 1)) (list '()))
    (if (< number 0)
        list
        (loop (- number 1) (cons number list)))))

(define (list-tail list count)
  (if (= count 0)
      list
      (list-tail (cdr list) (- count 1))))

(define (assoc key pairs)
  (cond ((null? pairs) #f)
        ((equal? (caar pairs) key) (car pairs))
        (else (assoc key (cdr pairs)))))

(define (member value list)
  (cond ((null? list) #f)
        ((equal? (car list) value) list)
        (else (member value (cdr list)))))

(define (min first &rest others)
  (fold (lambda (least number) (if (< number least) number least)) first others))

(define (max first &rest others)
  (fold (lambda (most number) (if (> number most) number most)) first others))

(define (abs number) (if (< number 0) (- number) number))

(define (zero? number) (= number 0))

(define (string=? a b) (and (string? a) (string? b) (equal? a b)))

(define (assert condition &rest what)
  (unless condition
    (apply error "this does not hold:" what)))

(define (merge less? a b)
  (let loop ((a a) (b b) (merged '()))
    (cond ((null? a) (append (reverse merged) b))
          ((null? b) (append (reverse merged) a))
          ((less? (car b) (car a)) (loop a (cdr b) (cons (car b) merged)))
          (else (loop (cdr a) b (cons (car a) merged))))))

; The sort is stable: equal elements keep their order.
(define (sort list less?)
  (define (sorted list length)
    (if (< length 2)
        (if (= length 0) '() (cons (car list) '()))
        (let ((half (quotient length 2)))
          (merge less?
                 (sorted list half)
                 (sorted (list-tail list half) (- length half))))))
  (sorted list (length list)))
