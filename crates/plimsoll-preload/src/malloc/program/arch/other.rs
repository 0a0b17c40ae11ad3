//! All other processors.

macro_rules! pass_on {
    ($name:ident, $note:path, $next:path) => {
        unsafe extern "C" fn $name() {
            $note(0, 0);
        }
    };
}

pub(in crate::malloc::program) use pass_on;
