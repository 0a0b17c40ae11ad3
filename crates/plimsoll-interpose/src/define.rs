//! The assembly forms in which functions of the C library are defined.

/// Defines a function in assembly: `define!(name in section => body; operands)`. The form `name as
/// other_name` adds a hidden name that nothing else defines.
///
/// The function is not a Rust item. In a shared library, rustc makes its symbol local, which binds
/// the library's own calls to it, whatever the program defines. With the feature `export`, it is a
/// Rust function, so that a shared library exports it.
macro_rules! define {
    (
        $name:ident $(as $own:ident)? in $section:expr =>
        $($body:expr),+; $($operands:tt)*
    ) => {
        #[cfg(not(feature = "export"))]
        core::arch::global_asm!(
            concat!(".section ", $section, ", \"ax\", %progbits"),
            concat!(".globl ", stringify!($name)),
            concat!(".type ", stringify!($name), ", %function"),
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
        /// The requirements of the C library's function of that name.
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
