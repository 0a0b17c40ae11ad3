//! The size classes in which allocations are counted.
//!
//! Up to 1 KiB a class is a step of 8 bytes, so that finding it takes one addition and one mask;
//! from there to 32 KiB the classes are those of Go's allocator. Go's classes below 1 KiB end on
//! multiples of 8, so each of its 67 is a union of Plimsoll's, and [`go`] folds them exactly.
//! Larger sizes have no class: bytes are counted as requested.

/// The number of classes, class 0 (for sizes of zero) included.
pub const CLASSES: usize = STEPS + LARGER.len();

/// The largest size that has a class, in bytes.
pub const LARGEST: usize = 32 * 1024;

/// The largest size whose class is a step of 8 bytes.
pub const LARGEST_STEP: usize = 1024;

const STEPS: usize = LARGEST_STEP / 8 + 1;

/// The classes above the steps, by the largest size in each: Go's.
static LARGER: [usize; 35] = [
    1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528,
    6784, 6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480,
    21760, 24576, 27264, 28672, 32768,
];

/// Returns the class of a size; `None` above [`LARGEST`] bytes.
#[inline]
#[allow(clippy::manual_div_ceil, reason = "`div_ceil` takes more instructions")]
pub const fn of(size: usize) -> Option<usize> {
    if size <= LARGEST_STEP {
        Some(size.div_ceil(8))
    } else if size <= LARGEST {
        Some(BY_128[(size - LARGEST_STEP + 127) / 128] as usize)
    } else {
        None
    }
}

/// Returns the largest size in a class, in bytes, at which its blocks count. Panics if the class
/// does not exist.
pub const fn size(class: usize) -> usize {
    if class < STEPS {
        8 * class
    } else {
        LARGER[class - STEPS]
    }
}

/// Returns the counted size of an allocation of `requested` bytes: the size of its class, or
/// `requested` above [`LARGEST`].
#[inline]
pub const fn counted_size(requested: usize) -> usize {
    match of(requested) {
        Some(class) => size(class),
        None => requested,
    }
}

/// Every entry of [`LARGER`] is a multiple of 128, so steps of 128 bytes suffice to find the class.
static BY_128: [u8; (LARGEST - LARGEST_STEP) / 128 + 1] = {
    let mut table = [(STEPS - 1) as u8; (LARGEST - LARGEST_STEP) / 128 + 1];
    let mut step = 1;
    let mut class = 0;
    while step < table.len() {
        if LARGEST_STEP + 128 * step > LARGER[class] {
            class += 1;
        }
        table[step] = (STEPS + class) as u8;
        step += 1;
    }
    table
};

/// Go's size classes, into which Plimsoll's fold.
pub mod go {
    /// The number of Go's size classes, class 0 (unused) included.
    pub const CLASSES: usize = 68;

    /// The largest size in each of Go's classes, in bytes.
    pub const SIZES: [u32; CLASSES] = {
        let small: [u32; 33] = [
            0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256,
            288, 320, 352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024,
        ];
        let mut sizes = [0; CLASSES];
        let mut class = 0;
        while class < CLASSES {
            sizes[class] = if class < small.len() {
                small[class]
            } else {
                super::LARGER[class - small.len()] as u32
            };
            class += 1;
        }
        sizes
    };

    /// Go's class for each of Plimsoll's. Class 0 (size zero) maps to Go's smallest.
    pub const OF_CLASS: [u8; super::CLASSES] = {
        let mut table = [0; super::CLASSES];
        let mut class = 0;
        let mut go = 1;
        while class < super::CLASSES {
            while super::size(class) > SIZES[go] as usize {
                go += 1;
            }
            table[class] = go as u8;
            class += 1;
        }
        table
    };
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_the_smallest_class_that_holds_it() {
        for requested in 0..=LARGEST {
            let class = of(requested).unwrap();
            assert!(
                requested <= size(class),
                "{requested} in class {class} of {}",
                size(class)
            );
            if class > 0 {
                assert!(
                    requested > size(class - 1),
                    "{requested} would fit class {}",
                    class - 1
                );
            }
            assert_eq!(counted_size(requested), size(class));
        }
        assert_eq!(of(LARGEST + 1), None);
        assert_eq!(of(usize::MAX), None);
        assert_eq!(counted_size(LARGEST + 1), LARGEST + 1);
        assert_eq!(of(LARGEST), Some(CLASSES - 1));
    }

    #[test]
    fn classes_ascend_and_fold_exactly_into_gos() {
        for class in 1..CLASSES {
            assert!(size(class) > size(class - 1));
            let go = usize::from(go::OF_CLASS[class]);
            let (least, most) = (go::SIZES[go - 1] as usize, go::SIZES[go] as usize);
            // The whole class lies inside Go's, so counts fold without knowing single sizes.
            assert!(
                size(class - 1) >= least && size(class) <= most,
                "class {class}"
            );
        }
        // Every class of Go's ends where one of Plimsoll's does.
        for go in 1..go::CLASSES {
            assert!((0..CLASSES).any(|class| size(class) == go::SIZES[go] as usize));
        }
        assert_eq!(go::OF_CLASS[0], 1);
        assert_eq!(go::SIZES[go::CLASSES - 1] as usize, LARGEST);
    }

    /// The allocator hook computes the steps of 8 without this table.
    #[test]
    fn a_step_is_found_by_rounding_up_to_eight() {
        for requested in 0..=LARGEST_STEP {
            assert_eq!(8 * of(requested).unwrap(), (requested + 7) & !7);
        }
    }
}
