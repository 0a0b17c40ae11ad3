; The Mandelbrot set in characters.

(define shades " .:-=+*#%@")

(define (steps x y most)
  (let loop ((re 0.0) (im 0.0) (step 0))
    (let ((re2 (* re re)) (im2 (* im im)))
      (if (or (= step most) (> (+ re2 im2) 4))
          step
          (loop (+ (- re2 im2) x) (+ (* 2 re im) y) (+ step 1))))))

(define (row y columns)
  (list->string
    (map (lambda (column)
           (let ((step (steps (- (/ (* 3.0 column) columns) 2.2) y 45)))
             (string-ref shades (quotient (* step 9) 45))))
         (iota columns))))

(define (picture rows columns)
  (map (lambda (at) (row (- (/ (* 2.4 at) (- rows 1)) 1.2) columns)) (iota rows)))

(define lines (picture 21 64))
(for-each print lines)
; The set is symmetric about its axis.
(assert (equal? lines (reverse lines)))
