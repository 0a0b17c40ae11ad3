; A Lisp in Lisp: numbers, if, lambda, let, and functions from the environment.

(define (lookup name environment)
  (let ((pair (assoc name environment)))
    (if pair (cdr pair) (error "unknown:" name))))

(define (bind names values environment)
  (if (null? names)
      environment
      (bind (cdr names) (cdr values) (cons (cons (car names) (car values)) environment))))

(define (evaluate form environment)
  (cond ((symbol? form) (lookup form environment))
        ((not (pair? form)) form)
        ((eq? (car form) 'quote) (cadr form))
        ((eq? (car form) 'if)
         (if (evaluate (cadr form) environment)
             (evaluate (caddr form) environment)
             (evaluate (cadr (cddr form)) environment)))
        ((eq? (car form) 'lambda)
         (list 'closure (cadr form) (caddr form) environment))
        ((eq? (car form) 'let)
         (evaluate (caddr form)
                   (bind (map car (cadr form))
                         (map (lambda (pair) (evaluate (cadr pair) environment)) (cadr form))
                         environment)))
        (else
         (call (evaluate (car form) environment)
               (map (lambda (argument) (evaluate argument environment)) (cdr form))))))

(define (call function arguments)
  (if (function? function)
      (apply function arguments)
      (evaluate (caddr function)
                (bind (cadr function) arguments (cadr (cddr function))))))

(define global
  (list (cons '+ +) (cons '- -) (cons '* *) (cons '< <)))

; The function recurs by receiving itself as an argument, because the language has no define.
(define fibonacci
  '(let ((step (lambda (self n)
                 (if (< n 2)
                     n
                     (+ (self self (- n 1)) (self self (- n 2)))))))
     (step step 15)))

(define result (evaluate fibonacci global))
(print "fibonacci of 15, twice removed: " result)
(assert (= result 610))
