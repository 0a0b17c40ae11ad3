//! The symbols of functions, by their addresses.

use std::ffi::c_void;
use std::mem::MaybeUninit;
use std::ptr;

#[cfg(target_pointer_width = "64")]
type Symbol = libc::Elf64_Sym;
#[cfg(not(target_pointer_width = "64"))]
type Symbol = libc::Elf32_Sym;

/// An exported function.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Exported {
    /// The size in bytes; 0 if the symbol does not state it.
    pub size: usize,
    /// Whether the object that contains the address defines the function. False for a jump stub to
    /// another object's function.
    pub is_defined: bool,
}

impl Exported {
    /// Finds the exported function that contains an address.
    #[allow(clippy::unnecessary_cast)] // The size has another type on 32-bit systems.
    pub fn at(address: usize) -> Option<Self> {
        /// Makes `dladdr1` return the symbol as well.
        const RTLD_DL_SYMENT: libc::c_int = 1;
        const SHN_UNDEF: u16 = 0;
        let mut found = MaybeUninit::<libc::Dl_info>::uninit();
        let mut symbol = ptr::null_mut();
        // SAFETY: `dladdr1` accepts any address, and writes to both variables.
        let known = unsafe {
            libc::dladdr1(
                address as *const c_void,
                found.as_mut_ptr(),
                &raw mut symbol,
                RTLD_DL_SYMENT,
            )
        };
        if known == 0 {
            return None;
        }
        // SAFETY: a symbol that is not null belongs to a loaded object.
        let symbol = unsafe { symbol.cast::<Symbol>().as_ref() }?;
        Some(Self {
            size: symbol.st_size as usize,
            is_defined: symbol.st_shndx != SHN_UNDEF,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_function_of_the_c_library_is_exported() {
        let function = super::super::function(c"qsort");
        let found = Exported::at(function as usize).unwrap();
        assert!(found.size > 0 && found.is_defined, "{found:?}");
        assert_eq!([0, 8].map(Exported::at), [None; 2]);
    }
}
