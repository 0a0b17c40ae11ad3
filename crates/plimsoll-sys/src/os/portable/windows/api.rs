//! Declarations of the system's functions.

use std::ffi::c_void;

pub(super) const MEM_COMMIT: u32 = 0x1000;
pub(super) const MEM_RESERVE: u32 = 0x2000;
pub(super) const MEM_DECOMMIT: u32 = 0x4000;
pub(super) const MEM_RELEASE: u32 = 0x8000;
pub(super) const PAGE_NOACCESS: u32 = 1;
pub(super) const PAGE_READWRITE: u32 = 4;

/// `FLS_OUT_OF_INDEXES`.
pub(super) const NO_INDEX: u32 = u32::MAX;

/// Handles that stand for the calling process and thread.
pub(super) const THIS_PROCESS: isize = -1;
pub(super) const THIS_THREAD: isize = -2;

/// `MEMORYSTATUSEX`.
#[repr(C)]
pub(super) struct MemoryStatus {
    pub(super) length: u32,
    pub(super) load: u32,
    pub(super) total: u64,
    pub(super) others: [u64; 6],
}

unsafe extern "system" {
    pub(super) fn GetLastError() -> u32;
    pub(super) fn SetLastError(error: u32);
    pub(super) fn VirtualAlloc(
        address: *mut c_void,
        length: usize,
        kind: u32,
        access: u32,
    ) -> *mut c_void;
    pub(super) fn VirtualFree(address: *mut c_void, length: usize, kind: u32) -> i32;
    pub(super) fn GlobalMemoryStatusEx(status: *mut MemoryStatus) -> i32;
    pub(super) fn FlushProcessWriteBuffers();
    pub(super) fn GetCurrentThreadStackLimits(low: *mut usize, high: *mut usize);
    pub(super) fn QueryPerformanceCounter(count: *mut i64) -> i32;
    pub(super) fn QueryPerformanceFrequency(per_second: *mut i64) -> i32;
    pub(super) fn GetProcessTimes(
        process: isize,
        created: *mut u64,
        ended: *mut u64,
        kernel: *mut u64,
        user: *mut u64,
    ) -> i32;
    pub(super) fn GetThreadTimes(
        thread: isize,
        created: *mut u64,
        ended: *mut u64,
        kernel: *mut u64,
        user: *mut u64,
    ) -> i32;
    pub(super) fn GetEnvironmentVariableW(name: *const u16, value: *mut u16, length: u32) -> u32;
    pub(super) fn FlsGetValue(index: u32) -> *mut c_void;
    pub(super) fn FlsSetValue(index: u32, value: *const c_void) -> i32;
}

// The callback has the system's convention, which is C's on 64-bit processors only.
#[cfg(target_pointer_width = "64")]
unsafe extern "system" {
    pub(super) fn FlsAlloc(destructor: Option<unsafe extern "C" fn(*mut c_void)>) -> u32;
}

/// Returns no index: destructors are called by another convention here.
#[cfg(not(target_pointer_width = "64"))]
#[expect(non_snake_case, reason = "it has the name of the system's function")]
pub(super) unsafe fn FlsAlloc(_: Option<unsafe extern "C" fn(*mut c_void)>) -> u32 {
    NO_INDEX
}

/// Calls `work` and restores the calling thread's error number.
pub(super) fn keep_error<R>(work: impl FnOnce() -> R) -> R {
    // SAFETY: the functions have no preconditions.
    unsafe {
        let before = GetLastError();
        let result = work();
        SetLastError(before);
        result
    }
}
