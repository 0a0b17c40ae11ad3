//! The programs of the example.

pub struct Program {
    pub name: &'static str,
    pub source: &'static str,
}

macro_rules! program {
    ($name:literal) => {
        Program {
            name: $name,
            source: include_str!(concat!("programs/", $name)),
        }
    };
}

pub const ALL: &[Program] = &[
    program!("queens.lisp"),
    program!("words.lisp"),
    program!("mandelbrot.lisp"),
    program!("json.lisp"),
    program!("trees.lisp"),
    program!("evaluator.lisp"),
];
