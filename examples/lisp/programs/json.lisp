; Reads and writes JSON. An object is a list of pairs after the symbol `object`, an array a list of
; values after `array`; null is the symbol `null`.

; The text, and the reader's position in it.
(define text "")
(define at 0)

(define (peek)
  (if (< at (string-length text)) (string-ref text at) #f))

(define (next)
  (let ((char (peek)))
    (unless char (error "the text ends too early"))
    (set! at (+ at 1))
    char))

(define (skip-space)
  (when (and (peek) (char-whitespace? (peek)))
    (next)
    (skip-space)))

(define (expect char)
  (let ((found (next)))
    (unless (eq? found char)
      (error "at" at "expected" char "found" found))))

(define (read-word word value)
  (for-each expect (string->list word))
  value)

(define (read-string)
  (expect #\")
  (let loop ((chars '()))
    (let ((char (next)))
      (cond ((eq? char #\") (list->string (reverse chars)))
            ((eq? char #\\) (loop (cons (escaped (next)) chars)))
            (else (loop (cons char chars)))))))

(define (escaped char)
  (cond ((eq? char #\n) #\newline)
        ((eq? char #\t) #\tab)
        (else char)))

(define (number-part? char)
  (and char
       (or (char-numeric? char) (member char '(#\- #\+ #\. #\e #\E)))))

(define (read-number)
  (let ((from at))
    (let loop ()
      (when (number-part? (peek))
        (next)
        (loop)))
    (or (string->number (substring text from at))
        (error "at" at "no number:" (substring text from at)))))

; Reads a sequence between `open` and `close`, separated by commas; `read-one` reads an element.
(define (read-sequence open close read-one)
  (expect open)
  (skip-space)
  (if (eq? (peek) close)
      (begin (next) '())
      (let loop ((values (list (read-one))))
        (skip-space)
        (if (eq? (peek) close)
            (begin (next) (reverse values))
            (begin (expect #\,) (loop (cons (read-one) values)))))))

(define (read-member)
  (skip-space)
  (let ((key (read-string)))
    (skip-space)
    (expect #\:)
    (cons key (read-value))))

(define (read-value)
  (skip-space)
  (let ((char (peek)))
    (cond ((not char) (error "there is no value"))
          ((eq? char #\{) (cons 'object (read-sequence #\{ #\} read-member)))
          ((eq? char #\[) (cons 'array (read-sequence #\[ #\] read-value)))
          ((eq? char #\") (read-string))
          ((eq? char #\t) (read-word "true" #t))
          ((eq? char #\f) (read-word "false" #f))
          ((eq? char #\n) (read-word "null" 'null))
          (else (read-number)))))

(define (json-read string)
  (set! text string)
  (set! at 0)
  (let ((value (read-value)))
    (skip-space)
    (when (peek) (error "at" at "there is more:" (peek)))
    value))

(define (json-write value)
  (cond ((eq? value #t) "true")
        ((eq? value #f) "false")
        ((eq? value 'null) "null")
        ((number? value) (number->string value))
        ((string? value) (write-string value))
        ((eq? (car value) 'array)
         (string-append "[" (string-join (map json-write (cdr value)) ",") "]"))
        (else
         (string-append
           "{"
           (string-join
             (map (lambda (member)
                    (string-append (write-string (car member)) ":" (json-write (cdr member))))
                  (cdr value))
             ",")
           "}"))))

(define (ship number)
  (list 'object
        (cons "name" (string-append "ship " (number->string number)))
        (cons "draught" (/ number 4.0))
        (cons "cargo" (list 'array number (* number number) "coal\n\"black\"" #t #f 'null))))

(define fleet (cons 'array (map ship (iota 300))))
(define written (json-write fleet))
(print "the fleet as JSON: " (string-length written) " characters, beginning with")
(print (substring written 0 76))
(assert (equal? (json-read written) fleet))
(assert (equal? (json-write (json-read written)) written))
(assert (equal? (json-read " { \"a\" : [ ] } ") (list (quote object) (cons "a" (list (quote array))))))
