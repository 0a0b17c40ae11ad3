//! The forms in which a function of the C library's is defined.

/// Defines a function in assembly: `define!(name in section => body; operands)`, with
/// `name as other_name` if it is to be known by another name, hidden, which nobody else defines.
///
/// It is nothing of Rust's: in a shared library, rustc makes it local, so that the library's own
/// calls are bound to it, whatever the program has. With the feature `export` it is a function that
/// rustc knows, so that it is seen from outside a shared library.
macro_rules! define {
    (
        $name:ident $(as $own:ident)? in $section:expr =>
        $($body:expr),+; $($operands:tt)*
    ) => {
        #[cfg(not(feature = "export"))]
        core::arch::global_asm!(
            concat!(".section ", $section, ", \"ax\", @progbits"),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", @function"),
            ".balign 16",
            concat!(stringify!($name), ":"),
            $(
                concat!(".hidden ", stringify!($own)),
                concat!(".globl ", stringify!($own)),
                concat!(stringify!($own), ":"),
            )?
            $($body,)+
            concat!(".size ", stringify!($name), ", . - ", stringify!($name)),
            ".text",
            $($operands)*
        );

        /// # Safety
        /// As the C library's.
        #[cfg(feature = "export")]
        #[unsafe(naked)]
        #[unsafe(no_mangle)]
        unsafe extern "C" fn $name() {
            core::arch::naked_asm!(
                $(
                    concat!(".hidden ", stringify!($own)),
                    concat!(".globl ", stringify!($own)),
                    concat!(stringify!($own), ":"),
                )?
                $($body,)+
                $($operands)*
            )
        }

        unsafe extern "C" {
            #[cfg(not(feature = "export"))]
            #[allow(dead_code)]
            fn $name();
            $(fn $own();)?
        }
    };
}

pub(crate) use define;
