; Binary trees: one is long-lived, many are short-lived.

(define (tree depth)
  (if (= depth 0)
      '()
      (cons (tree (- depth 1)) (tree (- depth 1)))))

(define (nodes tree)
  (if (null? tree)
      0
      (+ 1 (+ (nodes (car tree)) (nodes (cdr tree))))))

; Makes trees, one after the other, and prints the number of their nodes.
(define (short-lived count depth)
  (print count " trees of depth " depth ": "
         (fold (lambda (total number) (+ total (nodes (tree depth)))) 0 (iota count))
         " nodes"))

(define long-lived (tree 15))

(short-lived 256 4)
(short-lived 113 6)
(short-lived 64 8)
(short-lived 40 10)

(print "the long-lived tree has " (nodes long-lived) " nodes")
(assert (= (nodes long-lived) 32767))
