//! The evaluator of forms.

use std::collections::HashMap;
use std::io::Write;

use gc_arena::barrier::unlock;
use gc_arena::{Gc, Mutation};
use plimsoll::label;

use crate::value::{self, Function, Scope, Text, Value, Variable};

/// The maximum depth of nested evaluations. A call as the last form of a function adds none.
const MAX_DEPTH: usize = 1000;

const IF: &str = "(if test then otherwise)";
const LET: &str = "(let ((name value) ...) form ...)";
const LAMBDA: &str = "(lambda (name ...) form ...)";
const DEFINE: &str = "(define name value) or (define (name parameter ...) form ...)";

pub type Globals<'gc> = HashMap<String, Value<'gc>>;

pub struct Evaluator<'a, 'gc> {
    pub mc: &'a Mutation<'gc>,
    pub globals: &'a mut Globals<'gc>,
    pub output: &'a mut dyn Write,
    /// The function that is being evaluated, or in which an error occurred.
    pub function: Function<'gc>,
    /// The number of nested evaluations.
    pub depth: usize,
}

impl<'gc> Evaluator<'_, 'gc> {
    /// Returns the value of a form.
    pub fn evaluate(&mut self, form: Value<'gc>, scope: Scope<'gc>) -> Result<Value<'gc>, String> {
        if self.depth == MAX_DEPTH {
            return Err(format!("calls are nested deeper than {MAX_DEPTH}"));
        }
        let function = self.function;
        self.depth += 1;
        let value = self.evaluate_here(form, scope)?;
        self.depth -= 1;
        self.enter(function);
        Ok(value)
    }

    /// Makes this function the one that profiles and messages name.
    fn enter(&mut self, function: Function<'gc>) {
        self.function = function;
        label::set(function.labels);
    }

    /// Evaluates as [`evaluate`](Self::evaluate) does, but may leave `function` changed.
    fn evaluate_here(
        &mut self,
        mut form: Value<'gc>,
        mut scope: Scope<'gc>,
    ) -> Result<Value<'gc>, String> {
        // Each round evaluates one form, which another form replaces.
        loop {
            let pair = match form {
                Value::Pair(pair) => pair,
                Value::Symbol(name) => return self.variable(&name.text, scope),
                other => return Ok(other),
            };
            let operator = match pair.first {
                Value::Symbol(name) => &*name.as_ref().text,
                _ => "",
            };
            form = match operator {
                "quote" => return parts(pair.rest, "(quote value)").map(|([value], _)| value),
                "if" => {
                    let ([test, then, otherwise], _) = parts(pair.rest, IF)?;
                    match self.evaluate(test, scope)? {
                        Value::Bool(false) => otherwise,
                        _ => then,
                    }
                }
                "begin" => self.all_but_last(pair.rest, scope)?,
                "let" => {
                    let ([bindings], body) = parts(pair.rest, LET)?;
                    let outside = scope;
                    for binding in bindings.items() {
                        let ([name, value], _) = parts(binding, LET)?;
                        let value = self.evaluate(value, outside)?;
                        scope = value::variable(self.mc, symbol(name)?, value, scope);
                    }
                    self.all_but_last(body, scope)?
                }
                "lambda" => {
                    let (code, function) = (pair.rest, self.function);
                    return Ok(value::closure(self.mc, function, code, scope));
                }
                "define" => return self.define(pair.rest, scope),
                "set!" => return self.set(pair.rest, scope),
                _ => {
                    let function = self.evaluate(pair.first, scope)?;
                    // A loop keeps the stacks in profiles shorter than an iterator does.
                    let mut arguments = Vec::new();
                    for form in pair.rest.items() {
                        arguments.push(self.evaluate(form, scope)?);
                    }
                    match function {
                        Value::Native((name, run)) => {
                            let value = run(self.mc, self.output, &arguments);
                            return value.map_err(|message| format!("{name}: {message}"));
                        }
                        Value::Closure(closure) => {
                            self.enter(closure.function);
                            let ([parameters], body) = parts(closure.code, LAMBDA)?;
                            scope = self.bind(parameters, &arguments, closure.scope)?;
                            self.all_but_last(body, scope)?
                        }
                        other => return Err(format!("{other} is not a function")),
                    }
                }
            };
        }
    }

    /// Evaluates all forms of a list but the last, which it returns.
    fn all_but_last(&mut self, forms: Value<'gc>, scope: Scope<'gc>) -> Result<Value<'gc>, String> {
        let mut forms = forms.items();
        let mut form = forms.next().unwrap_or(Value::Nil);
        for next in forms {
            self.evaluate(form, scope)?;
            form = next;
        }
        Ok(form)
    }

    /// Returns the scope of a function's body.
    fn bind(
        &self,
        parameters: Value<'gc>,
        arguments: &[Value<'gc>],
        mut scope: Scope<'gc>,
    ) -> Result<Scope<'gc>, String> {
        let (needed, given) = (parameters.items().count(), arguments.len());
        if needed != given {
            return Err(format!("{needed} arguments are needed, not {given}"));
        }
        for (name, &value) in parameters.items().zip(arguments) {
            scope = value::variable(self.mc, symbol(name)?, value, scope);
        }
        Ok(scope)
    }

    fn variable(&self, name: &str, scope: Scope<'gc>) -> Result<Value<'gc>, String> {
        let local = Variable::find(scope, name).map(|variable| variable.value.get());
        let value = local.or_else(|| self.globals.get(name).copied());
        value.ok_or_else(|| format!("{name} is not defined"))
    }

    /// Sets a global variable.
    fn define(&mut self, forms: Value<'gc>, scope: Scope<'gc>) -> Result<Value<'gc>, String> {
        let ([head], body) = parts(forms, DEFINE)?;
        let (name, value) = if let Value::Pair(head) = head {
            let name = symbol(head.first)?;
            let function = Function::new(self.function.script, name);
            let code = value::cons(self.mc, head.rest, body);
            (name, value::closure(self.mc, function, code, scope))
        } else {
            let ([name, value], _) = parts(forms, DEFINE)?;
            (symbol(name)?, self.evaluate(value, scope)?)
        };
        self.globals.insert(name.text.to_string(), value);
        Ok(Value::Nil)
    }

    /// Sets a variable that exists.
    fn set(&mut self, forms: Value<'gc>, scope: Scope<'gc>) -> Result<Value<'gc>, String> {
        let ([name, value], _) = parts(forms, "(set! name value)")?;
        let name = &*symbol(name)?.as_ref().text;
        let value = self.evaluate(value, scope)?;
        if let Some(variable) = Variable::find(scope, name) {
            unlock!(Gc::write(self.mc, variable), Variable, value).set(value);
        } else if let Some(global) = self.globals.get_mut(name) {
            *global = value;
        } else {
            return Err(format!("{name} is not defined"));
        }
        Ok(Value::Nil)
    }
}

fn symbol(value: Value<'_>) -> Result<Gc<'_, Text>, String> {
    match value {
        Value::Symbol(name) => Ok(name),
        other => Err(format!("{other} is not a name")),
    }
}

/// Returns the first elements of a list, and the list of the others.
fn parts<'gc, const N: usize>(
    mut list: Value<'gc>,
    form: &str,
) -> Result<([Value<'gc>; N], Value<'gc>), String> {
    let mut first = [Value::Nil; N];
    for element in &mut first {
        let Value::Pair(pair) = list else {
            return Err(format!("this is not of the form {form}"));
        };
        *element = pair.first;
        list = pair.rest;
    }
    Ok((first, list))
}
