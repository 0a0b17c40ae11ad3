//! Systems whose loaders list no ELF files.

use std::convert::Infallible;
use std::ffi::{CStr, c_void};
use std::marker::PhantomData;

use super::{Name, Object, Segment};

pub(super) const LISTS_OBJECTS: bool = false;

pub(super) struct Segments<'a>(Infallible, PhantomData<&'a ()>);

pub(super) fn segments<'a>(none: &'a Segments<'_>) -> impl Iterator<Item = Segment> + Clone + 'a {
    let _: Infallible = none.0;
    std::iter::empty()
}

/// # Safety
/// None: there are no objects.
pub(super) unsafe fn segments_at<'a>(
    _: usize,
) -> Option<impl Iterator<Item = Segment> + Clone + 'a> {
    None::<std::iter::Empty<Segment>>
}

pub(super) fn segments_in(_: &[usize]) -> Option<impl Iterator<Item = Segment> + Clone + '_> {
    None::<std::iter::Empty<Segment>>
}

pub(super) fn names(object: &Object<'_>, _: &mut dyn FnMut(Name<'_>)) {
    let _: Infallible = object.segments.0;
}

pub(super) fn refers_to(object: &Object<'_>, _: &[&CStr]) -> Option<bool> {
    let _: Infallible = object.segments.0;
    None
}

pub(super) fn each_object(_: &mut dyn FnMut(&Object<'_>) -> bool) {}

pub(super) fn function(_: &CStr) -> *mut c_void {
    std::ptr::null_mut()
}
