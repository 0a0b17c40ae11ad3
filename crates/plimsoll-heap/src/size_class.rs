//! The sizes of small blocks: those of Go's allocator, so that counts by class are Go's `BySize`.

/// The number of classes, class 0 (unused) included.
pub const CLASSES: usize = 68;

/// The largest small block, in bytes. Larger ones are runs of pages.
pub const LARGEST: usize = 32 * 1024;

/// The largest size whose class is found in steps of 8 bytes.
pub(crate) const LARGEST_STEP: usize = 1024;

/// The size of a page of the heap, in bytes: the unit of spans and of large blocks.
pub(crate) const PAGE: usize = 8192;

/// The size of each class, in bytes.
pub const SIZES: [u32; CLASSES] = [
    0, 8, 16, 24, 32, 48, 64, 80, 96, 112, 128, 144, 160, 176, 192, 208, 224, 240, 256, 288, 320,
    352, 384, 416, 448, 480, 512, 576, 640, 704, 768, 896, 1024, 1152, 1280, 1408, 1536, 1792,
    2048, 2304, 2688, 3072, 3200, 3456, 4096, 4864, 5376, 6144, 6528, 6784, 6912, 8192, 9472, 9728,
    10240, 10880, 12288, 13568, 14336, 16384, 18432, 19072, 20480, 21760, 24576, 27264, 28672,
    32768,
];

/// The maximum number of blocks of a span: an 8 KiB page of 8-byte blocks.
pub(crate) const MAX_BLOCKS: usize = PAGE / 8;

/// The minimum number of blocks of a span, so that few blocks cause work on pages.
const MIN_BLOCKS: usize = 4;

/// The pages of a span of each class: as few as hold [`MIN_BLOCKS`] and waste at most an eighth.
pub(crate) const SPAN_PAGES: [u8; CLASSES] = {
    let mut pages = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        let size = SIZES[class] as usize;
        let mut count = 1;
        while count * PAGE < MIN_BLOCKS * size || count * PAGE % size > count * PAGE / 8 {
            count += 1;
        }
        pages[class] = count as u8;
        class += 1;
    }
    pages
};

/// The number of blocks of a span of each class.
pub(crate) const SPAN_BLOCKS: [u16; CLASSES] = {
    let mut blocks = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        blocks[class] = (SPAN_PAGES[class] as usize * PAGE / SIZES[class] as usize) as u16;
        class += 1;
    }
    blocks
};

/// The binary digits after the point of [`INVERSES`].
const INVERSE_BITS: u32 = 40;

/// The inverse of each size, rounded up.
const INVERSES: [u64; CLASSES] = {
    let mut inverses = [0; CLASSES];
    let mut class = 1;
    while class < CLASSES {
        inverses[class] = (1_u64 << INVERSE_BITS).div_ceil(SIZES[class] as u64);
        class += 1;
    }
    inverses
};

/// The class of each size up to [`LARGEST_STEP`], by the size in steps of 8 bytes, rounded up.
pub(crate) const BY_8: [u8; LARGEST_STEP / 8 + 1] = steps(0, 8);

/// The class of each larger size, by the size above [`LARGEST_STEP`] in steps of 128 bytes, rounded up.
pub(crate) const BY_128: [u8; (LARGEST - LARGEST_STEP) / 128 + 1] = steps(LARGEST_STEP, 128);

const fn steps<const N: usize>(first: usize, step: usize) -> [u8; N] {
    let mut classes = [1; N];
    let (mut at, mut class) = (0, 1);
    while at < N {
        while (SIZES[class] as usize) < first + at * step {
            class += 1;
        }
        classes[at] = class as u8;
        at += 1;
    }
    classes
}

/// Returns the class of blocks of `size` bytes, at most [`LARGEST`], that begin on a multiple of 8.
#[inline]
pub(crate) const fn of(size: usize) -> usize {
    if size <= LARGEST_STEP {
        BY_8[size.div_ceil(8)] as usize
    } else {
        BY_128[(size - LARGEST_STEP).div_ceil(128)] as usize
    }
}

/// Returns the class of blocks of `size` bytes that begin on a multiple of `align`, a power of two;
/// `None` if they are runs of pages.
///
/// Spans begin on a multiple of [`PAGE`], so all blocks of a size that is a multiple of `align` do.
#[inline]
pub(crate) fn of_aligned(size: usize, align: usize) -> Option<usize> {
    if size > LARGEST || align > PAGE {
        return None;
    }
    let rounded = (size + (align - 1)) & !(align - 1);
    if align <= 16 {
        // From 16 bytes on, a size that is a multiple of 16 is in a class that is one.
        return Some(of(rounded));
    }
    (of(rounded)..CLASSES).find(|&class| SIZES[class] as usize % align == 0)
}

/// Returns which block of a span begins at `offset` bytes from its start; `None` if none does.
#[inline]
pub(crate) fn block_at(class: usize, offset: usize) -> Option<usize> {
    let index = ((offset as u64 * INVERSES[class]) >> INVERSE_BITS) as usize;
    (index * SIZES[class] as usize == offset && index < usize::from(SPAN_BLOCKS[class]))
        .then_some(index)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_size_is_in_the_smallest_class_that_holds_it() {
        for size in 1..=LARGEST {
            let class = of(size);
            assert!(SIZES[class] as usize >= size, "{size}");
            assert!(class == 1 || (SIZES[class - 1] as usize) < size, "{size}");
        }
    }

    #[test]
    fn every_aligned_size_is_in_a_class_of_aligned_blocks() {
        for shift in 0..=13 {
            let align = 1_usize << shift;
            for size in (1..=LARGEST).step_by(7).chain([align, LARGEST]) {
                let class = of_aligned(size, align).expect("the largest class is aligned");
                let block = SIZES[class] as usize;
                assert!(
                    block >= size && (block % align == 0 || align < 8),
                    "{size} {align}"
                );
            }
        }
        assert_eq!(of_aligned(8, 2 * PAGE), None);
        assert_eq!(of_aligned(LARGEST + 1, 1), None);
    }

    #[test]
    fn a_block_is_found_at_its_first_byte_only() {
        for class in 1..CLASSES {
            let size = SIZES[class] as usize;
            let span = usize::from(SPAN_PAGES[class]) * PAGE;
            for offset in 0..span {
                let index = offset / size;
                let is_block = offset % size == 0 && index < usize::from(SPAN_BLOCKS[class]);
                assert_eq!(block_at(class, offset), is_block.then_some(index));
            }
        }
    }

    #[test]
    fn spans_waste_at_most_an_eighth_and_fit_their_bitmap() {
        for class in 1..CLASSES {
            let (size, blocks) = (SIZES[class] as usize, usize::from(SPAN_BLOCKS[class]));
            let span = usize::from(SPAN_PAGES[class]) * PAGE;
            assert!((MIN_BLOCKS..=MAX_BLOCKS).contains(&blocks), "class {class}");
            assert!(span - blocks * size <= span / 8, "class {class}");
        }
    }
}
