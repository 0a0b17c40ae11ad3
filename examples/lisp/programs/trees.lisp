; Binary trees: one is long-lived, many are short-lived.

(define (tree depth)
  (if (= depth 0)
      '()
      (cons (tree (- depth 1)) (tree (- depth 1)))))

(define (nodes tree)
  (if (null? tree)
      0
      (+ 1 (nodes (car tree)) (nodes (cdr tree)))))

(define long-lived (tree 15))

(define (many count depth)
  (let loop ((left count) (total 0))
    (if (= left 0)
        total
        (loop (- left 1) (+ total (nodes (tree depth)))))))

(for-each
  (lambda (depth)
    (let ((count (quotient 4096 (* depth depth))))
      (print count " trees of depth " depth ": " (many count depth) " nodes")))
  '(4 6 8 10))
(print "the long-lived tree has " (nodes long-lived) " nodes")
(assert (= (nodes long-lived) 32767))
(assert (= (many 10 4) 150))
