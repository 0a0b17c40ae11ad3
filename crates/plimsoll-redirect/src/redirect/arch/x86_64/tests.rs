use super::decode::{self, Flow};
use super::*;
use crate::redirect::Obstacle;

/// Instructions as the assembler encodes them.
const INSTRUCTIONS: [&[u8]; 24] = [
    &[0x55],                                        // push rbp
    &[0x41, 0x57],                                  // push r15
    &[0x48, 0x89, 0xe5],                            // mov rbp, rsp
    &[0x48, 0x81, 0xec, 0xa8, 0, 0, 0],             // sub rsp, 0xa8
    &[0x48, 0x83, 0xec, 0x18],                      // sub rsp, 0x18
    &[0x64, 0x48, 0x8b, 0x1c, 0x25, 0, 0, 0, 0],    // mov rbx, fs:0
    &[0x48, 0xc7, 0xc0, 0xb8, 0xf5, 0xff, 0xff],    // mov rax, -0xa48
    &[0x48, 0x81, 0xff, 1, 0x10, 0, 0],             // cmp rdi, 0x1001
    &[0x48, 0x8d, 0x47, 7],                         // lea rax, [rdi+7]
    &[0x0f, 0xb6, 4, 8],                            // movzx eax, byte ptr [rax+rcx]
    &[0x31, 0xc0],                                  // xor eax, eax
    &[0x48, 0x85, 0xff],                            // test rdi, rdi
    &[0x48, 0xb8, 1, 2, 3, 4, 5, 6, 7, 8],          // movabs rax, ..
    &[0xb8, 1, 0, 0, 0],                            // mov eax, 1
    &[0xf3, 0x0f, 0x1e, 0xfa],                      // endbr64
    &[0x64, 0x48, 0x39, 0x8c, 0xd0, 0xb0, 1, 0, 0], // cmp fs:[rax+rdx*8+0x1b0], rcx
    &[0x66, 0x2e, 0x0f, 0x1f, 0x84, 0, 0, 0, 0, 0], // nop word ptr cs:[rax+rax]
    &[0x0f, 0x57, 0xc0],                            // xorps xmm0, xmm0
    &[0x0f, 0x11, 0x44, 0x24, 0x10],                // movups [rsp+0x10], xmm0
    &[0x48, 0xc1, 0xe8, 3],                         // shr rax, 3
    &[0xf6, 0xc3, 1],                               // test bl, 1
    &[0x48, 0xf7, 0xd8],                            // neg rax
    &[0x48, 0x69, 0xc0, 1, 0, 0, 0],                // imul rax, rax, 1
    &[0x41, 0x0f, 0x94, 0xc0],                      // sete r8b
];

#[test]
fn instructions_have_the_lengths_that_the_assembler_gave_them() {
    for bytes in INSTRUCTIONS {
        let code = [bytes, &[0x90; 8]].concat();
        let found = decode::first(&code).unwrap_or_else(|| panic!("{bytes:x?}"));
        assert_eq!(found.length, bytes.len(), "{bytes:x?}");
        assert_eq!((found.flow, found.relative), (Flow::Next, None));
        for cut in 0..bytes.len() {
            assert_eq!(decode::first(&bytes[..cut]), None, "{bytes:x?} {cut}");
        }
    }
}

/// `bytes` as a function of 64 bytes.
fn function(bytes: &[u8]) -> Vec<u8> {
    let mut code = bytes.to_vec();
    code.resize(64, 0x90);
    code
}

fn obstacle(bytes: &[u8]) -> Option<Obstacle> {
    displace(&function(bytes)).err()
}

#[test]
fn indirect_calls_and_jumps_are_not_moved() {
    for bytes in [
        // xbegin, whose constant is a distance; call far ptr [rip]
        &[0xc7, 0xf8, 1, 0, 0, 0][..],
        &[0xff, 0x1d, 0, 0, 0, 0],
        &[0xeb, 0x20][..],         // jmp, short
        &[0xff, 0xe0],             // jmp rax
        &[0xff, 0x64, 0x24, 8],    // jmp [rsp+8]
        &[0xff, 0x2d, 0, 1, 0, 0], // jmp far ptr [rip+0x100]
        &[0xff, 0xd0],             // call rax
        &[0xff, 0x54, 0x24, 8],    // call [rsp+8]
        &[0xc5, 0xf8, 0x57, 0xc0], // vxorps
        &[0x0f, 0x05],             // syscall
        &[0x55, 0xff, 0xd0],       // push rbp; call rax
    ] {
        assert!(
            matches!(obstacle(bytes), Some(Obstacle::Instructions(_))),
            "{bytes:x?}"
        );
    }
}

#[test]
fn short_functions_are_refused() {
    for code in [
        &[0x48, 0x89, 0xf8, 0xc3][..], // mov rax, rdi; ret
        &[0x31, 0xc0, 0xc3],
        &[0xc3],
        &[],
        &[0x55, 0x48, 0x89, 0xe5],
        &[0xf3, 0x0f, 0x1e, 0xfa],
    ] {
        assert_eq!(displace(code).err(), Some(Obstacle::Short), "{code:x?}");
    }
}

#[test]
fn branches_into_the_replaced_bytes_are_found() {
    // mov rax, rdi; loop: dec rsi; jne loop
    let back = [0x48, 0x89, 0xf8, 0x48, 0xff, 0xce, 0x75, 0xfb];
    assert_eq!(obstacle(&back), Some(Obstacle::Branch));
    // To the first byte: the jump is taken again.
    let mut to_first = back;
    to_first[7] = 0xf8;
    assert_eq!(obstacle(&to_first), None);
    // Behind an unknown instruction, and far.
    let mut far = function(&[0x55; 8]);
    far[8..10].copy_from_slice(&[0xc5, 0xf8]);
    far[40..45].copy_from_slice(&[0xe9, 0xd6, 0xff, 0xff, 0xff]);
    assert_eq!(displace(&far).err(), Some(Obstacle::Branch));
    far[41] = 0xd8;
    assert!(displace(&far).is_ok());
}

/// Distances in a trampoline lead to the same addresses as in the function.
#[test]
fn distances_are_corrected() {
    // mov rax, [rip+0x1000]; je +0x10; then more
    let code = function(&[0x48, 0x8b, 5, 0, 0x10, 0, 0]);
    let moved = displace(&code).unwrap();
    let mut to = [0; 64];
    trampoline(&moved, 0x40_0000, 0x30_0000, &mut to).unwrap();
    assert_eq!(to[..7], [0xf3, 0x0f, 0x1e, 0xfa, 0x48, 0x8b, 5]);
    let field = i32::from_le_bytes(to[7..11].try_into().unwrap()) as isize;
    assert_eq!(0x30_000b_usize.wrapping_add_signed(field), 0x40_1007);
    let field = i32::from_le_bytes(to[12..16].try_into().unwrap()) as isize;
    assert_eq!(
        (to[11], 0x30_0010_usize.wrapping_add_signed(field)),
        (0xe9, 0x40_0007)
    );
    // Out of reach.
    assert!(trampoline(&moved, 0x40_0000, 0x5555_0000_0000, &mut to).is_none());
    // test rdi, rdi; je +0x10
    let code = function(&[0x48, 0x85, 0xff, 0x74, 0x10]);
    let moved = displace(&code).unwrap();
    trampoline(&moved, 0x40_0000, 0x30_0000, &mut to).unwrap();
    assert_eq!(to[7..9], [0x0f, 0x84]);
    let field = i32::from_le_bytes(to[9..13].try_into().unwrap()) as isize;
    assert_eq!(0x30_000d_usize.wrapping_add_signed(field), 0x40_0015);
}

/// A call in a trampoline returns to the function, and a jump does not come back.
#[test]
fn calls_and_jumps_lead_to_the_same_functions() {
    let mut to = [0; 64];
    let at = |to: &[u8], field: usize| {
        let distance = i32::from_le_bytes(to[field..field + 4].try_into().unwrap());
        (0x30_0000 + field + 4).wrapping_add_signed(distance as isize)
    };
    // sub rsp, 8; call +0x100
    let code = function(&[0x48, 0x83, 0xec, 8, 0xe8, 0, 1, 0, 0]);
    let moved = displace(&code).unwrap();
    trampoline(&moved, 0x40_0000, 0x30_0000, &mut to).unwrap();
    assert_eq!(to[8..10], [0xff, 0x35]);
    assert_eq!(
        (at(&to, 10), to[14], at(&to, 15)),
        (0x30_0038, 0xe9, 0x40_0109)
    );
    assert_eq!(to[56..], 0x40_0009_usize.to_le_bytes());
    // call [rip+0x100]
    let moved = displace(&function(&[0xff, 0x15, 0, 1, 0, 0])).unwrap();
    trampoline(&moved, 0x40_0000, 0x30_0000, &mut to).unwrap();
    assert_eq!(
        (&to[4..6], &to[10..12]),
        (&[0xff, 0x35][..], &[0xff, 0x25][..])
    );
    assert_eq!((at(&to, 12), at(&to, 6)), (0x40_0106, 0x30_0038));
    assert_eq!(to[56..], 0x40_0006_usize.to_le_bytes());
    // jmp [rip+0x100]
    let moved = displace(&[0xff, 0x25, 0, 1, 0, 0]).unwrap();
    trampoline(&moved, 0x40_0000, 0x30_0000, &mut to).unwrap();
    assert_eq!((&to[4..6], at(&to, 6)), (&[0xff, 0x25][..], 0x40_0106));
    // jmp -0x100
    let moved = displace(&[0xe9, 0, 0xff, 0xff, 0xff]).unwrap();
    trampoline(&moved, 0x40_0000, 0x30_0000, &mut to).unwrap();
    assert_eq!((to[4], at(&to, 5)), (0xe9, 0x3f_ff05));
}

/// Arbitrary bytes are refused or decoded; nothing is read beyond them.
#[test]
fn arbitrary_bytes_are_decoded_within_their_bounds() {
    let mut state = 7_u64;
    for _ in 0..200_000 {
        let mut code = [0; 24];
        for byte in &mut code {
            state = state.wrapping_mul(6364136223846793005).wrapping_add(1);
            *byte = (state >> 56) as u8;
        }
        let length = (state >> 40) as usize % 25;
        if let Some(found) = decode::first(&code[..length]) {
            assert!(found.length <= length && found.length > 0);
            assert!(found.relative.is_none_or(|at| at + 4 <= found.length));
        }
        if let Ok(moved) = displace(&code[..length]) {
            assert!(moved.start + JUMP <= length);
            let mut to = [0; 112];
            let written = trampoline(&moved, 0x40_0000, 0x30_0000, &mut to);
            // A distance near the largest is out of reach from the trampoline.
            let reaches = |distance: i32| distance.unsigned_abs() < 1 << 30;
            let mut at = moved.start;
            let mut all_near = true;
            while at < moved.start + moved.length {
                let found = decode::first(&code[at..]).unwrap();
                let field = found
                    .relative
                    .map(|field| &code[at + field..at + field + 4]);
                let field = field.map(|field| i32::from_le_bytes(field.try_into().unwrap()));
                all_near &= field.or(found.flow.distance()).is_none_or(reaches);
                at += found.length;
            }
            assert!(written.is_some() || !all_near, "{code:x?}");
        }
    }
}
