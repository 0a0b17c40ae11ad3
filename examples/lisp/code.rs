//! The operations of compiled functions, on a stack of values.

/// An operation. Indices of constants and codes refer to the function's tables. `up` counts the
/// frames from the innermost one to the variable's.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Pushes a constant.
    Constant(u32),
    /// Pushes a variable.
    Variable {
        up: u16,
        slot: u16,
    },
    /// Pushes the global variable of a symbol, which is a constant.
    Global(u32),
    /// Pops a value into a variable.
    SetVariable {
        up: u16,
        slot: u16,
    },
    /// Pops a value into a global variable that exists.
    SetGlobal(u32),
    /// Pops a value into a global variable.
    Define(u32),
    /// Pushes a function that captures the variables visible here.
    Lambda(u32),
    /// Pops values into a new frame, within the current one.
    Enter {
        values: u16,
        slots: u16,
    },
    /// Returns to the enclosing frame.
    Leave,
    Pop,
    Jump(u32),
    /// Pops a value, and jumps if it is false.
    JumpIfFalse(u32),
    /// Jumps if the value on top is false; pops it otherwise.
    And(u32),
    /// Jumps if the value on top is true; pops it otherwise.
    Or(u32),
    /// Calls the function below this many arguments.
    Call(u32),
    /// A call as the last operation of a function, which it replaces.
    TailCall(u32),
    Return,
}
