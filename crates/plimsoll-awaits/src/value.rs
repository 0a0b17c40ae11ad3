//! Values in the memory of a process, by their types.

use std::rc::Rc;

use rustc_hash::FxHashMap;

use crate::copies::Copies;
use crate::index::TypeId;
use crate::types::{Member, Shape, Type, Types};

/// A value in memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct Value {
    pub(crate) address: u64,
    pub(crate) kind: TypeId,
}

/// What the table of functions of a task says. The tables are constants of the program.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Table {
    /// The address of the function that polls the task.
    pub(crate) poll: u64,
    /// The distance from a task's header to its last part; `None` in versions that keep the same in the header.
    pub(crate) trailer_offset: Option<u64>,
    /// The distance from a task's header to tokio's number of the task.
    pub(crate) id_offset: Option<u64>,
}

/// Types and memory.
pub(crate) struct Reading<'a> {
    pub(crate) types: Types<'a>,
    pub(crate) copies: Copies<'a>,
    /// The tables of functions of tasks that were read, by address.
    pub(crate) tables: FxHashMap<u64, Table>,
    /// The types of tasks, by the addresses of the functions that poll them.
    pub(crate) cells: FxHashMap<u64, Option<TypeId>>,
}

impl<'a> Reading<'a> {
    pub(crate) fn new(types: Types<'a>, copies: Copies<'a>) -> Self {
        Self {
            types,
            copies,
            tables: FxHashMap::default(),
            cells: FxHashMap::default(),
        }
    }
}

/// The most values that one search looks at, and how deep they lie in each other.
const MAX_SEARCHED: usize = 4096;
const MAX_DEPTH: usize = 24;

/// The most elements of a slice that are looked at.
const MAX_ELEMENTS: u64 = 1 << 16;

impl Value {
    /// Returns a part of the value; `None` if its address would overflow.
    fn part(self, member: &Member) -> Option<Self> {
        Some(Self {
            address: self.address.checked_add(member.offset)?,
            kind: member.kind,
        })
    }
}

impl<'a> Reading<'a> {
    pub(crate) fn kind(&mut self, value: Value) -> Option<Rc<Type>> {
        self.types.get(value.kind)
    }

    /// Returns the value as a number.
    pub(crate) fn number(&mut self, value: Value) -> Option<u64> {
        let size = self.kind(value)?.size;
        self.copies.number(value.address, size)
    }

    /// Returns the active variant of an enum.
    pub(crate) fn variant(&mut self, value: Value) -> Option<Member> {
        let kind = self.kind(value)?;
        let Shape::Enum {
            discriminant,
            variants,
        } = &kind.shape
        else {
            return None;
        };
        let Some(discriminant) = discriminant else {
            return match &variants[..] {
                [only] => Some(only.member.clone()),
                // Which of several is possible is not described.
                _ => None,
            };
        };
        let part = value.part(discriminant)?;
        let size = self.types.get(part.kind)?.size;
        let number = self.copies.number(part.address, size)?;
        let mask = u64::MAX >> (64 - 8 * size.clamp(1, 8));
        let is = |stated: Option<u64>| stated.is_some_and(|stated| stated & mask == number);
        let of_others = || variants.iter().find(|variant| variant.value.is_none());
        let active = variants.iter().find(|variant| is(variant.value));
        Some(active.or_else(of_others)?.member.clone())
    }

    /// Returns the parts of a value: of an enum, the active variant.
    pub(crate) fn parts(&mut self, value: Value) -> Vec<(Rc<str>, Value)> {
        let mut parts = Vec::new();
        let _: Option<()> = self.each_part(value, |_, name, part| {
            parts.push((name.clone(), part));
            None
        });
        parts
    }

    /// Calls `visit` with the parts of a value until it returns one.
    fn each_part<R>(
        &mut self,
        value: Value,
        mut visit: impl FnMut(&mut Self, &Rc<str>, Value) -> Option<R>,
    ) -> Option<R> {
        let kind = self.kind(value)?;
        let active;
        let members = match &kind.shape {
            Shape::Struct(members) => &members[..],
            Shape::Enum { .. } => {
                active = self.variant(value)?;
                std::slice::from_ref(&active)
            }
            Shape::Pointer(_) | Shape::Scalar => &[],
        };
        members
            .iter()
            .find_map(|member| visit(self, &member.name, value.part(member)?))
    }

    /// Returns the part with a name.
    pub(crate) fn member(&mut self, value: Value, name: &str) -> Option<Value> {
        self.each_part(value, |_, part, found| (**part == *name).then_some(found))
    }

    /// Returns the first value that satisfies a condition among a value and all of its parts, without following pointers.
    pub(crate) fn find(
        &mut self,
        value: Value,
        is_wanted: &mut dyn FnMut(&str, &Type) -> bool,
    ) -> Option<Value> {
        let mut left = MAX_SEARCHED;
        self.find_in("", value, is_wanted, MAX_DEPTH, &mut left)
    }

    fn find_in(
        &mut self,
        name: &str,
        value: Value,
        is_wanted: &mut dyn FnMut(&str, &Type) -> bool,
        depth: usize,
        left: &mut usize,
    ) -> Option<Value> {
        *left = left.checked_sub(1)?;
        let kind = self.kind(value)?;
        if is_wanted(name, &kind) {
            return Some(value);
        }
        let depth = depth.checked_sub(1)?;
        self.each_part(value, |this, name, part| {
            this.find_in(name, part, is_wanted, depth, left)
        })
    }

    /// Returns the first value whose full name begins with `prefix`.
    pub(crate) fn find_type(&mut self, value: Value, prefix: &str) -> Option<Value> {
        self.find(value, &mut |_, kind| kind.name.starts_with(prefix))
    }

    /// Returns the first part with a name, however deep.
    pub(crate) fn find_member(&mut self, value: Value, wanted: &str) -> Option<Value> {
        self.find(value, &mut |name, _| name == wanted)
    }

    /// Returns the target of the first pointer in a value; `None` if it is null.
    pub(crate) fn target(&mut self, value: Value) -> Option<Value> {
        let pointer = self.find(value, &mut |_, kind| {
            matches!(kind.shape, Shape::Pointer(_))
        })?;
        let Shape::Pointer(kind) = self.kind(pointer)?.shape else {
            return None;
        };
        let address = self.copies.number(pointer.address, 8)?;
        (address != 0).then_some(Value { address, kind })
    }

    /// Returns the elements of a vector, or of a boxed or borrowed slice.
    pub(crate) fn elements(&mut self, slice: Value) -> Option<Vec<Value>> {
        let kind = self.kind(slice)?;
        let (first, length) = if kind.name.starts_with("alloc::vec::Vec<") {
            let length = self.member(slice, "len")?;
            let first = Value {
                kind: kind.argument?,
                ..self.target(slice)?
            };
            (first, length)
        } else {
            let first = self.member(slice, "data_ptr")?;
            (self.target(first)?, self.member(slice, "length")?)
        };
        let length = self.number(length)?;
        let size = self.kind(first)?.size;
        if length > MAX_ELEMENTS {
            return None;
        }
        let element = |at: u64| {
            let address = first.address.checked_add(at.checked_mul(size)?)?;
            Some(Value { address, ..first })
        };
        (0..length).map(element).collect()
    }
}
