//! Tests of the language, as programs see it.

use crate::interpreter::{Error, Interpreter};
use crate::machine::DEEPEST;
use crate::natives::Output;
use crate::programs;

fn interpreter() -> Interpreter {
    Interpreter::new(Output::Nowhere).expect("the name can be had")
}

fn run(source: &str) -> Result<String, Error> {
    interpreter().run("test.lisp", source)
}

/// Returns the value of the last form as text.
fn value(source: &str) -> String {
    run(source).unwrap_or_else(|error| panic!("{source}: {error}"))
}

fn mistake(source: &str) -> String {
    match run(source) {
        Err(error) => error.fault.message,
        Ok(value) => panic!("{source} is {value}"),
    }
}

fn are(cases: &[(&str, &str)]) {
    for (source, expected) in cases {
        assert_eq!(value(source), *expected, "{source}");
    }
}

#[test]
fn atoms_evaluate_to_themselves() {
    are(&[
        ("1", "1"),
        ("-1.5", "-1.5"),
        ("2.0", "2.0"),
        ("\"a\\nb\"", "\"a\\nb\""),
        ("#\\a", "#\\a"),
        ("#\\space", "#\\space"),
        ("'()", "()"),
        ("'(a 1 \"b\" (c))", "(a 1 \"b\" (c))"),
        ("'quote", "quote"),
        ("''a", "(quote a)"),
        ("", ""),
    ]);
}

#[test]
fn numbers_are_whole_as_long_as_they_can_be() {
    are(&[
        ("(+)", "0"),
        ("(+ 1 2 3)", "6"),
        ("(- 5)", "-5"),
        ("(- 5 2 1)", "2"),
        ("(* 2 3.0)", "6.0"),
        ("(/ 6 3)", "2"),
        ("(/ 7 2)", "3.5"),
        ("(quotient -7 2)", "-3"),
        ("(remainder -7 2)", "-1"),
        ("(modulo -7 2)", "1"),
        ("(modulo 7 -2)", "-1"),
        ("(truncate -1.9)", "-1"),
        ("(sqrt 9)", "3.0"),
        ("(< 1 2 3)", "#t"),
        ("(< 1 3 2)", "#f"),
        ("(= 1 1.0)", "#t"),
        ("(= 9007199254740993 9007199254740992)", "#f"),
        ("(max 1 5 3)", "5"),
        ("(string->number \"12\")", "12"),
        ("(string->number \"x\")", "#f"),
    ]);
    for source in [
        "(+ 9223372036854775807 1)",
        "(- -9223372036854775808)",
        "(* 9223372036854775807 2)",
        "(/ -9223372036854775808 -1)",
        "(quotient -9223372036854775808 -1)",
        "(remainder -9223372036854775808 -1)",
        "(truncate 1e300)",
        "(truncate 9223372036854775808.0)",
    ] {
        assert!(
            mistake(source).contains("too large for an integer"),
            "{source}"
        );
    }
    assert_eq!(mistake("(/ 1 0)"), "/: 1 cannot be divided by 0");
    assert_eq!(mistake("(modulo 1 0)"), "modulo: 1 cannot be divided by 0");
    assert_eq!(mistake("(+ 1 'a)"), "+: a is not a number");
    assert_eq!(
        mistake("(truncate (/ 0.0 0))"),
        "truncate: NaN is too large for an integer"
    );
}

#[test]
fn forms_choose_and_bind() {
    are(&[
        ("(if #f 1)", "()"),
        ("(if '() 1 2)", "1"),
        ("(cond (#f 1) ((+ 1 1)) (else 3))", "2"),
        ("(cond (#f 1))", "()"),
        ("(and)", "#t"),
        ("(and 1 #f 2)", "#f"),
        ("(or #f 2 3)", "2"),
        ("(or)", "#f"),
        ("(when 1 2 3)", "3"),
        ("(unless 1 2 3)", "()"),
        ("(begin 1 2)", "2"),
        ("(let ((a 1) (b 2)) (+ a b))", "3"),
        ("(define a 1) (let ((a 2) (b a)) b)", "1"),
        ("(define a 1) (let* ((a 2) (b a)) b)", "2"),
        (
            "(letrec ((even? (lambda (n) (if (= n 0) #t (odd? (- n 1))))) (odd? (lambda (n) (if (= n 0) #f (even? (- n 1)))))) (even? 1001))",
            "#f",
        ),
        (
            "(let loop ((i 0) (all '())) (if (= i 3) all (loop (+ i 1) (cons i all))))",
            "(2 1 0)",
        ),
        ("(let () 5)", "5"),
        ("(define x 1) (set! x (+ x 1)) x", "2"),
        // A bound name is not a special form.
        ("(define (f if) (if 1)) (f (lambda (x) (+ x 1)))", "2"),
    ]);
}

#[test]
fn functions_capture_their_environment() {
    are(&[
        ("((lambda (x) (* x x)) 7)", "49"),
        (
            "(define (counter) (let ((count 0)) (lambda () (set! count (+ count 1)) count)))
             (define a (counter)) (define b (counter)) (a) (a) (b) (list (a) (b))",
            "(3 2)",
        ),
        (
            "(define (f a &rest others) (list a others)) (f 1 2 3)",
            "(1 (2 3))",
        ),
        ("((lambda all all) 1 2)", "(1 2)"),
        ("(apply + 1 2 '(3 4))", "10"),
        ("(apply apply (list + (list 1 2)))", "3"),
        (
            "(define (outer n) (define (inner m) (+ n m)) (define two 2) (inner two)) (outer 5)",
            "7",
        ),
        ("(map (lambda (x) (* x x)) '(1 2 3))", "(1 4 9)"),
        ("(fold + 0 (filter (lambda (x) (> x 1)) '(1 2 3)))", "5"),
        ("(sort '(3 1 2 1) <)", "(1 1 2 3)"),
        ("car", "#<function car>"),
        ("map", "#<function map>"),
    ]);
    assert_eq!(
        mistake("((lambda (x) x))"),
        "lambda, line 1 takes 1 arguments, not 0"
    );
    assert_eq!(mistake("(car)"), "car takes 1 arguments, not 0");
    assert_eq!(mistake("(1 2)"), "1 is not a function");
    assert_eq!(mistake("(apply + 1)"), "apply: 1 is not a list");
    assert_eq!(
        mistake("(define (f) (define a b) (define b 1) a) (f)"),
        "a variable is used before its definition"
    );
}

#[test]
fn strings_are_of_characters() {
    are(&[
        ("(string-length \"aé\")", "2"),
        ("(string-ref \"aéb\" 2)", "#\\b"),
        ("(substring \"aéb\" 1 3)", "\"éb\""),
        ("(substring \"aéb\" 3 3)", "\"\""),
        ("(substring \"abc\" 1 1)", "\"\""),
        ("(string-append \"a\" \"b\")", "\"ab\""),
        ("(string-join '(\"a\" \"b\") \", \")", "\"a, b\""),
        ("(list->string (reverse (string->list \"abc\")))", "\"cba\""),
        ("(string=? \"a\" \"a\")", "#t"),
        ("(char->integer #\\A)", "65"),
        ("(integer->char 233)", "#\\é"),
    ]);
    for source in [
        "(string-ref \"a\" 1)",
        "(string-ref \"a\" -1)",
        "(substring \"aé\" 1 3)",
        "(substring \"ab\" 2 1)",
        "(substring \"é\" 1 0)",
        "(integer->char 55296)",
        "(list->string '(1))",
        "(string-append 1)",
    ] {
        mistake(source);
    }
}

#[test]
fn keys_of_tables_compare_by_value() {
    are(&[
        (
            "(define t (make-table)) (table-set! t \"a\" 1) (table-set! t 'a 2) (table-set! t 1 3)
             (list (table-ref t \"a\") (table-ref t 'a) (table-ref t 1) (table-ref t 2 4))",
            "(1 2 3 4)",
        ),
        (
            "(define t (make-table)) (table-set! t 1 2) (table-delete! t 1) (table-count t)",
            "0",
        ),
        (
            "(define t (make-table)) (table-set! t 1 t) t",
            "#<table of 1>",
        ),
    ]);
    assert_eq!(
        mistake("(table-ref (make-table) 1)"),
        "table-ref: there is no key 1"
    );
    assert_eq!(
        mistake("(table-set! (make-table) car 1)"),
        "table-set!: a function cannot be a key"
    );
}

#[test]
fn a_mistake_has_its_line_and_its_callers() {
    let error =
        run("(define (f x)\n  (car x))\n\n(define (g)\n  (+ 1 (f 5)))\n(list (g))").unwrap_err();
    assert_eq!(
        error.to_string(),
        "test.lisp, line 2: car: 5 is not a pair\n  in f, line 2\n  in g, line 5\n  in top level, line 6"
    );
    for (source, line, message) in [
        ("\n(if)", 2, "if needs a test and one or two branches"),
        ("\n\n(let ((a)) a)", 3, "let needs ((name value) ...)"),
        (
            "(define)",
            1,
            "define is (define name value) or (define (name parameter ...) form ...)",
        ),
        ("(lambda (1) 1)", 1, "a parameter is a symbol"),
        ("(lambda (&rest) 1)", 1, "one name comes after &rest"),
        ("()", 1, "() is no expression; '() is the empty list"),
        (
            "(define (f) (if 1 (define a 2)) 3)",
            1,
            "define is not allowed here",
        ),
        (
            "(define (f x) (define (g) (if 1 (define x 2))) x)",
            1,
            "define is not allowed here",
        ),
        ("(cond (else 1) (2 3))", 1, "else comes last"),
        ("\nnowhere", 2, "nowhere is not defined"),
        ("\n(set! nowhere 1)", 2, "nowhere is not defined"),
        (
            "(error \"wrong:\" 'a \"b\" '(\"c\"))",
            1,
            "error: wrong: a b (\"c\")",
        ),
    ] {
        let fault = run(source).expect_err(source).fault;
        assert_eq!((fault.line, fault.message.as_str()), (line, message));
    }
}

#[test]
fn after_a_mistake_the_interpreter_goes_on() {
    let mut interpreter = interpreter();
    interpreter
        .run("a.lisp", "(define (f) (+ 1 (car 1)))")
        .unwrap();
    for _ in 0..3 {
        let error = interpreter.run("b.lisp", "(list 1 (f))").unwrap_err();
        assert_eq!(error.fault.callers.len(), 2, "{error}");
        assert_eq!(interpreter.run("c.lisp", "(list 1 2)").unwrap(), "(1 2)");
    }
}

#[test]
fn a_tail_call_takes_no_room() {
    are(&[
        (
            "(define (count n) (if (= n 0) 'done (count (- n 1)))) (count 300000)",
            "done",
        ),
        (
            "(define (even n) (cond ((= n 0) #t) (else (let ((m (- n 1))) (and #t (odd m))))))
             (define (odd n) (if (= n 0) #f (begin 1 (or #f (even (- n 1))))))
             (even 300001)",
            "#f",
        ),
        (
            "(define (f n) (if (= n 0) 1 (apply f (list (- n 1))))) (f 200000)",
            "1",
        ),
    ]);
}

#[test]
fn depth_has_an_end_and_no_crash() {
    let deeper = DEEPEST + 1;
    assert_eq!(
        mistake("(define (f n) (+ 1 (f n))) (f 1)"),
        format!("calls are nested deeper than {DEEPEST}")
    );
    // Lists that the program nests deeper than any stack are made, compared, and shown.
    let nested = format!(
        "(define (nest n all) (if (= n 0) all (nest (- n 1) (list all)))) (define deep (nest {deeper} '()))"
    );
    assert!(value(&format!("{nested} deep")).contains("..."));
    assert_eq!(
        value(&format!("{nested} (equal? deep (nest {deeper} '()))")),
        "#t"
    );
    let doubled = "(define (double n all) (if (= n 0) all (double (- n 1) (cons all all))))";
    assert!(value(&format!("{doubled} (double 64 1)")).len() < 4 << 20);
    assert_eq!(
        mistake(&format!("{doubled} (equal? (double 64 1) (double 64 1))")),
        "equal?: these are too large to be compared"
    );
    let forms = "(+ 1 ".repeat(180) + "1" + &")".repeat(180);
    assert_eq!(value(&forms), "181");
    for opening in [
        "(if ",
        "(let ((a ",
        "(lambda (x) ",
        "(let loop ((a ",
        "(define (f) ",
        "(cond (1 ",
    ] {
        let closing = opening.matches('(').count() - opening.matches(')').count();
        let depth = 190 / closing;
        let source = opening.repeat(depth) + "1" + &")".repeat(closing * depth);
        // The result does not matter, only that there is one.
        let _ = run(&source);
    }
}

#[test]
fn memory_has_an_end_and_no_crash() {
    let mut interpreter = interpreter();
    interpreter.limit_bytes(2 << 20);
    for source in [
        "(define (grow all) (grow (cons 1 all))) (grow '())",
        "(define (grow all) (grow (cons (string-append \"0123456789abcdef\" (number->string 1)) all))) (grow '())",
        "(define t (make-table)) (define (grow n) (table-set! t n n) (grow (+ n 1))) (grow 0)",
        "(define (grow f) (grow (lambda () f))) (grow 1)",
    ] {
        let error = interpreter.run("test.lisp", source).expect_err(source);
        assert_eq!(
            error.fault.message, "the script has too much in memory",
            "{source}"
        );
        interpreter.run("test.lisp", "(define t 0)").unwrap();
    }
    // Garbage does not end a script.
    let garbage =
        "(define (churn n) (if (= n 0) 'done (begin (iota 100) (churn (- n 1))))) (churn 2000)";
    assert_eq!(interpreter.run("test.lisp", garbage).unwrap(), "done");
    let strings = "(define (churn n) (if (= n 0) 'done (begin (string-append (string-join (map number->string (iota 1000)) \" \")) (churn (- n 1))))) (churn 50)";
    assert_eq!(interpreter.run("test.lisp", strings).unwrap(), "done");
    assert_eq!(
        mistake("(define (double text) (double (string-append text text))) (double \"a\")"),
        "string-append: the string would be too long"
    );
    assert_eq!(
        mistake("(define (f n) (apply list (iota n))) (f 1100000)"),
        "too many values are under way"
    );
}

#[test]
fn displayed_values_are_written_to_the_output() {
    let mut interpreter = Interpreter::new(Output::Kept(String::new())).unwrap();
    interpreter
        .run(
            "test.lisp",
            "(display \"a\" #\\b 1) (print '(\"c\" #\\d)) (write \"e\")",
        )
        .unwrap();
    assert_eq!(
        interpreter.written(),
        "ab1(\"c\" #\\d)\n\"e\"".replace("\"c\" #\\d", "c d")
    );
}

#[test]
fn the_programs_of_the_example_pass_their_assertions() {
    let mut interpreter = Interpreter::new(Output::Kept(String::new())).unwrap();
    for program in programs::ALL {
        interpreter
            .run(program.name, program.source)
            .unwrap_or_else(|error| panic!("{error}"));
    }
    assert!(interpreter.written().contains("8 queens: 92 ways"));
}

/// Programs of random words end, with a value or a fault.
#[test]
fn no_text_crashes_the_interpreter() {
    const WORDS: [&str; 40] = [
        "(",
        ")",
        "(",
        ")",
        "(",
        ")",
        "'",
        "\"a\"",
        "1",
        "-2",
        "1.5",
        "#t",
        "#f",
        "#\\a",
        "x",
        "y",
        "define",
        "lambda",
        "let",
        "let*",
        "letrec",
        "if",
        "cond",
        "else",
        "and",
        "or",
        "set!",
        "begin",
        "when",
        "quote",
        "car",
        "cons",
        "list",
        "apply",
        "map",
        "+",
        "string-append",
        "make-table",
        "&rest",
        "equal?",
    ];
    let mut state = 0x2545_f491_4f6c_dd1d_u64;
    let mut chance = move |below: usize| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 33) as usize % below
    };
    let mut interpreter = interpreter();
    let mut values = 0;
    for _ in 0..3000 {
        let mut source = String::new();
        let mut open = 0_usize;
        for _ in 0..chance(40) {
            let word = WORDS[chance(WORDS.len())];
            match word {
                "(" => open += 1,
                ")" if open == 0 => continue,
                ")" => open -= 1,
                _ => {}
            }
            source.push_str(word);
            source.push(' ');
        }
        source.push_str(&")".repeat(open));
        // Programs cannot loop forever: definitions are discarded soon, and recursion is limited.
        values += usize::from(interpreter.run("test.lisp", &source).is_ok());
        if chance(20) == 0 {
            interpreter = self::interpreter();
        }
    }
    assert!(values > 100, "{values}");
}
