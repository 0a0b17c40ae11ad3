//! The size classes by which allocations are counted where they are counted.

pub const CLASSES: usize = STEPS + LARGER.len();
pub const LARGEST: usize = 32 * 1024;
pub const LARGEST_STEP: usize = 1024;

/// The number of classes in steps of 8 bytes.
const STEPS: usize = LARGEST_STEP / 8 + 1;

/// The classes above the steps, by the largest size in each: Go's.
const LARGER: [usize; 35] = [
    1152, 1280, 1408, 1536, 1792, 2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528,
    6784, 6912, 8192, 9472, 9728, 10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480,
    21760, 24576, 27264, 28672, 32768,
];

#[inline]
pub const fn of(size: usize) -> Option<usize> {
    if size <= LARGEST_STEP {
        return Some(size.div_ceil(8));
    }
    // A search: no allocation needs it here.
    let mut class = STEPS;
    while class < CLASSES {
        if size <= self::size(class) {
            return Some(class);
        }
        class += 1;
    }
    None
}

pub const fn size(class: usize) -> usize {
    if class < STEPS {
        8 * class
    } else {
        LARGER[class - STEPS]
    }
}

#[inline]
pub const fn counted_size(requested: usize) -> usize {
    match of(requested) {
        Some(class) => size(class),
        None => requested,
    }
}

pub mod go {
    pub const CLASSES: usize = 68;

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
