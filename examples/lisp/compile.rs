//! The compiler, from forms to operations.

use gc_arena::Gc;

use crate::code::Op;
use crate::fault::Fault;
use crate::read::{Form, Kind};
use crate::symbols::Symbols;
use crate::value::{self, Code, Heap, Parts, Value};

/// The name of code outside all functions.
pub const TOP_LEVEL: &str = "top level";

/// Compiles a form outside all functions to a function without parameters.
pub fn top_level<'gc>(
    heap: &Heap<'gc>,
    symbols: &mut Symbols<'gc>,
    form: &Form,
) -> Result<Gc<'gc, Code<'gc>>, Fault> {
    let mut compiler = Compiler {
        heap,
        symbols,
        scopes: Vec::new(),
        outside: None,
    };
    let mut code = Builder::named(TOP_LEVEL);
    compiler.expression(&mut code, form, true)?;
    code.put(Op::Return, form.line);
    Ok(compiler.finish(code, 0, false, 0))
}

struct Compiler<'a, 'gc> {
    heap: &'a Heap<'gc>,
    symbols: &'a mut Symbols<'gc>,
    /// The variables of each frame, the innermost frame last.
    scopes: Vec<Vec<String>>,
    /// In a function, the number of frames outside it.
    outside: Option<usize>,
}

struct Builder<'gc> {
    name: String,
    ops: Vec<Op>,
    lines: Vec<u32>,
    constants: Vec<Value<'gc>>,
    codes: Vec<Gc<'gc, Code<'gc>>>,
}

impl Builder<'_> {
    fn named(name: &str) -> Self {
        Self {
            name: name.to_owned(),
            ops: Vec::new(),
            lines: Vec::new(),
            constants: Vec::new(),
            codes: Vec::new(),
        }
    }

    fn put(&mut self, op: Op, line: u32) -> usize {
        self.ops.push(op);
        self.lines.push(line);
        self.ops.len() - 1
    }

    /// Sets the target of the jump at `from` to the next operation.
    fn land(&mut self, from: usize) {
        let here = self.ops.len() as u32;
        match &mut self.ops[from] {
            Op::Jump(to) | Op::JumpIfFalse(to) | Op::And(to) | Op::Or(to) => *to = here,
            op => unreachable!("{op:?} does not jump"),
        }
    }
}

impl<'gc> Builder<'gc> {
    fn constant(&mut self, value: Value<'gc>) -> u32 {
        let known = self.constants.iter().position(|known| known.is(value));
        let at = known.unwrap_or_else(|| {
            self.constants.push(value);
            self.constants.len() - 1
        });
        at as u32
    }
}

impl<'gc> Compiler<'_, 'gc> {
    fn finish(
        &mut self,
        code: Builder<'gc>,
        parameters: usize,
        rest: bool,
        slots: usize,
    ) -> Gc<'gc, Code<'gc>> {
        let parts = Parts {
            name: code.name,
            parameters,
            rest,
            slots,
            ops: code.ops,
            lines: code.lines,
            constants: code.constants,
            codes: code.codes,
        };
        value::code(self.heap, parts)
    }

    fn expression(
        &mut self,
        code: &mut Builder<'gc>,
        form: &Form,
        tail: bool,
    ) -> Result<(), Fault> {
        let line = form.line;
        let forms = match &form.kind {
            Kind::List(forms) => forms,
            Kind::Symbol(name) => {
                let op = match self.place(line, name)? {
                    Some((up, slot)) => Op::Variable { up, slot },
                    None => Op::Global(self.global(code, name)),
                };
                code.put(op, line);
                return Ok(());
            }
            _ => {
                self.quoted(code, form)?;
                return Ok(());
            }
        };
        let Some((head, rest)) = forms.split_first() else {
            return Err(Fault::new(
                line,
                "() is no expression; '() is the empty list",
            ));
        };
        let Kind::Symbol(name) = &head.kind else {
            return self.call(code, line, forms, tail);
        };
        // A variable hides a special form of the same name, as in (define (f list) (list 1)).
        if self.place(line, name)?.is_some() {
            return self.call(code, line, forms, tail);
        }
        match name.as_str() {
            "quote" => self.quoted(code, one(line, "quote", rest)?),
            "if" => self.conditional(code, line, rest, tail),
            "cond" => self.cond(code, line, rest, tail),
            "and" => self.short(code, line, rest, tail, Op::And(0), true),
            "or" => self.short(code, line, rest, tail, Op::Or(0), false),
            "when" | "unless" => self.when(code, line, rest, tail, name == "unless"),
            "begin" => self.sequence(code, line, rest, tail),
            "lambda" => self.lambda(code, line, rest),
            "let" => self.let_all(code, line, rest, tail),
            "let*" | "letrec" => self.let_each(code, line, rest, tail, name == "letrec"),
            "define" => self.define(code, line, rest),
            "set!" => self.set(code, line, rest),
            _ => self.call(code, line, forms, tail),
        }
    }

    /// Returns the number of frames up, and the slot in that frame.
    fn place(&self, line: u32, name: &str) -> Result<Option<(u16, u16)>, Fault> {
        for (up, scope) in self.scopes.iter().rev().enumerate() {
            // The later of two variables with one name hides the earlier.
            if let Some(slot) = scope.iter().rposition(|known| known == name) {
                let number = |number: usize| u16::try_from(number).ok();
                let place = number(up).zip(number(slot));
                return place
                    .map(Some)
                    .ok_or_else(|| Fault::new(line, "there are too many variables here"));
            }
        }
        Ok(None)
    }

    fn global(&mut self, code: &mut Builder<'gc>, name: &str) -> u32 {
        let symbol = self.symbols.symbol(self.heap, name);
        code.constant(Value::Symbol(symbol))
    }

    fn quoted(&mut self, code: &mut Builder<'gc>, form: &Form) -> Result<(), Fault> {
        let value = self.value(form)?;
        let constant = code.constant(value);
        code.put(Op::Constant(constant), form.line);
        Ok(())
    }

    fn value(&mut self, form: &Form) -> Result<Value<'gc>, Fault> {
        Ok(match &form.kind {
            Kind::Bool(value) => Value::Bool(*value),
            Kind::Int(value) => Value::Int(*value),
            Kind::Float(value) => Value::Float(*value),
            Kind::Char(value) => Value::Char(*value),
            Kind::Symbol(name) => Value::Symbol(self.symbols.symbol(self.heap, name)),
            Kind::Text(text) => value::text(self.heap, text.clone())
                .map_err(|message| Fault::new(form.line, message))?,
            Kind::List(forms) => {
                let mut values = Vec::with_capacity(forms.len());
                for form in forms {
                    values.push(self.value(form)?);
                }
                value::list(self.heap, &values)
            }
        })
    }

    fn call(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        forms: &[Form],
        tail: bool,
    ) -> Result<(), Fault> {
        for form in forms {
            self.expression(code, form, false)?;
        }
        self.put_call(code, line, forms.len() - 1, tail);
        Ok(())
    }

    fn put_call(&mut self, code: &mut Builder<'gc>, line: u32, arguments: usize, tail: bool) {
        let arguments = arguments as u32;
        code.put(
            if tail {
                Op::TailCall(arguments)
            } else {
                Op::Call(arguments)
            },
            line,
        );
    }

    fn nothing(&mut self, code: &mut Builder<'gc>, line: u32) {
        let nil = code.constant(Value::Nil);
        code.put(Op::Constant(nil), line);
    }

    fn conditional(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        forms: &[Form],
        tail: bool,
    ) -> Result<(), Fault> {
        let (test, then, otherwise) = match forms {
            [test, then] => (test, then, None),
            [test, then, otherwise] => (test, then, Some(otherwise)),
            _ => return Err(Fault::new(line, "if needs a test and one or two branches")),
        };
        self.expression(code, test, false)?;
        let to_else = code.put(Op::JumpIfFalse(0), line);
        self.expression(code, then, tail)?;
        let to_end = code.put(Op::Jump(0), line);
        code.land(to_else);
        match otherwise {
            Some(otherwise) => self.expression(code, otherwise, tail)?,
            None => self.nothing(code, line),
        }
        code.land(to_end);
        Ok(())
    }

    fn cond(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        clauses: &[Form],
        tail: bool,
    ) -> Result<(), Fault> {
        let mut to_end = Vec::new();
        let mut otherwise = false;
        for clause in clauses {
            let wrong = || Fault::new(clause.line, "a clause of cond is (test form ...)");
            let Kind::List(forms) = &clause.kind else {
                return Err(wrong());
            };
            let (test, body) = forms.split_first().ok_or_else(wrong)?;
            if otherwise {
                return Err(Fault::new(clause.line, "else comes last"));
            }
            if test.kind == Kind::Symbol("else".to_owned()) {
                otherwise = true;
                self.sequence(code, clause.line, body, tail)?;
                continue;
            }
            self.expression(code, test, false)?;
            if body.is_empty() {
                to_end.push(code.put(Op::Or(0), clause.line));
                continue;
            }
            let to_next = code.put(Op::JumpIfFalse(0), clause.line);
            self.sequence(code, clause.line, body, tail)?;
            to_end.push(code.put(Op::Jump(0), clause.line));
            code.land(to_next);
        }
        if !otherwise {
            self.nothing(code, line);
        }
        for from in to_end {
            code.land(from);
        }
        Ok(())
    }

    fn short(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        forms: &[Form],
        tail: bool,
        op: Op,
        of_none: bool,
    ) -> Result<(), Fault> {
        let Some((last, others)) = forms.split_last() else {
            let value = code.constant(Value::Bool(of_none));
            code.put(Op::Constant(value), line);
            return Ok(());
        };
        let mut to_end = Vec::with_capacity(others.len());
        for form in others {
            self.expression(code, form, false)?;
            to_end.push(code.put(op, form.line));
        }
        self.expression(code, last, tail)?;
        for from in to_end {
            code.land(from);
        }
        Ok(())
    }

    fn when(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        forms: &[Form],
        tail: bool,
        unless: bool,
    ) -> Result<(), Fault> {
        let Some((test, body)) = forms.split_first() else {
            return Err(Fault::new(line, "when and unless need a test"));
        };
        self.expression(code, test, false)?;
        let to_other = code.put(Op::JumpIfFalse(0), line);
        if unless {
            self.nothing(code, line);
        } else {
            self.sequence(code, line, body, tail)?;
        }
        let to_end = code.put(Op::Jump(0), line);
        code.land(to_other);
        if unless {
            self.sequence(code, line, body, tail)?;
        } else {
            self.nothing(code, line);
        }
        code.land(to_end);
        Ok(())
    }

    fn sequence(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        forms: &[Form],
        tail: bool,
    ) -> Result<(), Fault> {
        let Some((last, others)) = forms.split_last() else {
            self.nothing(code, line);
            return Ok(());
        };
        for form in others {
            self.expression(code, form, false)?;
            code.put(Op::Pop, form.line);
        }
        self.expression(code, last, tail)
    }

    /// `(lambda (parameter ... [&rest rest]) form ...)`, or with all arguments as a list: `(lambda
    /// rest form ...)`.
    fn lambda(&mut self, code: &mut Builder<'gc>, line: u32, forms: &[Form]) -> Result<(), Fault> {
        let Some((parameters, body)) = forms.split_first() else {
            return Err(Fault::new(line, "lambda needs parameters"));
        };
        let name = if code.name == TOP_LEVEL || code.name.starts_with("lambda") {
            format!("lambda, line {line}")
        } else if let Some(at) = code.name.find(" in ") {
            format!("lambda in {}", &code.name[at + " in ".len()..])
        } else {
            format!("lambda in {}", code.name)
        };
        let (names, rest) = self.parameters(parameters)?;
        self.function(code, &name, line, names, rest, body)
    }

    fn parameters(&self, form: &Form) -> Result<(Vec<String>, bool), Fault> {
        match &form.kind {
            Kind::Symbol(name) => Ok((vec![name.clone()], true)),
            Kind::List(forms) => {
                let mut names = Vec::with_capacity(forms.len());
                let mut rest = false;
                for (at, form) in forms.iter().enumerate() {
                    let name = symbol(form, "a parameter is a symbol")?;
                    if name == "&rest" {
                        if at + 2 != forms.len() {
                            return Err(Fault::new(form.line, "one name comes after &rest"));
                        }
                        rest = true;
                        continue;
                    }
                    names.push(name.to_owned());
                }
                Ok((names, rest))
            }
            _ => Err(Fault::new(form.line, "parameters are a list of symbols")),
        }
    }

    fn function(
        &mut self,
        code: &mut Builder<'gc>,
        name: &str,
        line: u32,
        mut names: Vec<String>,
        rest: bool,
        body: &[Form],
    ) -> Result<(), Fault> {
        let parameters = names.len() - usize::from(rest);
        add_definitions(&mut names, body);
        let slots = names.len();
        let outside = self.outside.replace(self.scopes.len());
        // A function without variables needs no frame.
        if slots > 0 {
            self.scopes.push(names);
        }
        let mut inner = Builder::named(name);
        self.sequence(&mut inner, line, body, true)?;
        inner.put(Op::Return, line);
        if slots > 0 {
            self.scopes.pop();
        }
        self.outside = outside;
        let inner = self.finish(inner, parameters, rest, slots);
        code.codes.push(inner);
        code.put(Op::Lambda((code.codes.len() - 1) as u32), line);
        Ok(())
    }

    fn let_all(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        forms: &[Form],
        tail: bool,
    ) -> Result<(), Fault> {
        let wrong = || Fault::new(line, "let needs ((name value) ...)");
        let (bindings, body) = forms.split_first().ok_or_else(wrong)?;
        if let Kind::Symbol(name) = &bindings.kind {
            return self.loop_named(code, line, name, body, tail);
        }
        let bindings = pairs(bindings)?;
        let mut names = Vec::with_capacity(bindings.len());
        for (name, value) in bindings {
            self.expression(code, value, false)?;
            names.push(name.to_owned());
        }
        let values = names.len();
        add_definitions(&mut names, body);
        self.scope(code, line, values, names, body, tail)
    }

    /// Compiles a body in a frame, into which the values are popped.
    fn scope(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        values: usize,
        names: Vec<String>,
        body: &[Form],
        tail: bool,
    ) -> Result<(), Fault> {
        if names.is_empty() {
            return self.sequence(code, line, body, tail);
        }
        self.enter(code, line, values, names)?;
        self.sequence(code, line, body, tail)?;
        self.leave(code, line);
        Ok(())
    }

    fn enter(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        values: usize,
        names: Vec<String>,
    ) -> Result<(), Fault> {
        let number = |number: usize| u16::try_from(number).ok();
        let Some((values, slots)) = number(values).zip(number(names.len())) else {
            return Err(Fault::new(line, "there are too many variables here"));
        };
        code.put(Op::Enter { values, slots }, line);
        self.scopes.push(names);
        Ok(())
    }

    fn leave(&mut self, code: &mut Builder<'gc>, line: u32) {
        self.scopes.pop();
        code.put(Op::Leave, line);
    }

    /// `(let name ((variable value) ...) form ...)`: a function that is called immediately.
    fn loop_named(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        name: &str,
        forms: &[Form],
        tail: bool,
    ) -> Result<(), Fault> {
        let wrong = || Fault::new(line, "let needs ((name value) ...)");
        let (bindings, body) = forms.split_first().ok_or_else(wrong)?;
        let bindings = pairs(bindings)?;
        self.enter(code, line, 0, vec![name.to_owned()])?;
        let names = bindings.iter().map(|&(name, _)| name.to_owned()).collect();
        let function = format!("{name} in {}", code.name);
        let function = if code.name == TOP_LEVEL {
            name
        } else {
            &function
        };
        self.function(code, function, line, names, false, body)?;
        code.put(Op::SetVariable { up: 0, slot: 0 }, line);
        code.put(Op::Variable { up: 0, slot: 0 }, line);
        // The name is not visible in the values.
        self.hide_innermost(String::new());
        for (_, value) in &bindings {
            self.expression(code, value, false)?;
        }
        self.hide_innermost(name.to_owned());
        self.put_call(code, line, bindings.len(), tail);
        self.leave(code, line);
        Ok(())
    }

    fn hide_innermost(&mut self, name: String) {
        if let Some(only) = self.scopes.last_mut().and_then(|scope| scope.first_mut()) {
            *only = name;
        }
    }

    /// `let*` and `letrec`: each value sees the names before its own, or all names.
    fn let_each(
        &mut self,
        code: &mut Builder<'gc>,
        line: u32,
        forms: &[Form],
        tail: bool,
        all: bool,
    ) -> Result<(), Fault> {
        let wrong = || Fault::new(line, "let needs ((name value) ...)");
        let (bindings, body) = forms.split_first().ok_or_else(wrong)?;
        let bindings = pairs(bindings)?;
        let names = bindings.iter().map(|&(name, _)| name.to_owned());
        let mut names: Vec<String> = names.collect();
        let values = names.len();
        add_definitions(&mut names, body);
        if names.is_empty() {
            return self.sequence(code, line, body, tail);
        }
        let hidden = names.iter().enumerate();
        let hidden = hidden.map(|(at, name)| {
            if all || at >= values {
                name.clone()
            } else {
                String::new()
            }
        });
        let hidden = hidden.collect();
        self.enter(code, line, 0, hidden)?;
        for (slot, (name, value)) in bindings.iter().enumerate() {
            self.named(code, name, value)?;
            let slot = slot as u16;
            code.put(Op::SetVariable { up: 0, slot }, value.line);
            if let Some(scope) = self.scopes.last_mut() {
                scope[usize::from(slot)] = (*name).to_owned();
            }
        }
        self.sequence(code, line, body, tail)?;
        self.leave(code, line);
        Ok(())
    }

    /// Compiles an expression. A function that it makes gets this name.
    fn named(&mut self, code: &mut Builder<'gc>, name: &str, form: &Form) -> Result<(), Fault> {
        if let Kind::List(forms) = &form.kind {
            if let [head, parameters, body @ ..] = forms.as_slice() {
                let is_lambda = head.kind == Kind::Symbol("lambda".to_owned());
                if is_lambda && self.place(head.line, "lambda")?.is_none() {
                    let (names, rest) = self.parameters(parameters)?;
                    return self.function(code, name, form.line, names, rest, body);
                }
            }
        }
        self.expression(code, form, false)
    }

    fn define(&mut self, code: &mut Builder<'gc>, line: u32, forms: &[Form]) -> Result<(), Fault> {
        let wrong = || {
            Fault::new(
                line,
                "define is (define name value) or (define (name parameter ...) form ...)",
            )
        };
        let (target, rest) = forms.split_first().ok_or_else(wrong)?;
        let name = match &target.kind {
            Kind::Symbol(name) => {
                let [value] = rest else { return Err(wrong()) };
                self.named(code, name, value)?;
                name
            }
            Kind::List(header) => {
                let (name, parameters) = header.split_first().ok_or_else(wrong)?;
                let name = match &name.kind {
                    Kind::Symbol(name) => name,
                    _ => return Err(wrong()),
                };
                let parameters = Form {
                    line: target.line,
                    kind: Kind::List(parameters.to_vec()),
                };
                let (names, has_rest) = self.parameters(&parameters)?;
                self.function(code, name, line, names, has_rest, rest)?;
                name
            }
            _ => return Err(wrong()),
        };
        let not_here = || Fault::new(line, "define is not allowed here");
        let inside = self.scopes.get(self.outside.unwrap_or(0)..);
        match inside.and_then(<[_]>::last) {
            Some(scope) => {
                let slot = scope.iter().rposition(|known| known == name);
                let slot = u16::try_from(slot.ok_or_else(not_here)?)
                    .map_err(|_| Fault::new(line, "there are too many variables here"))?;
                code.put(Op::SetVariable { up: 0, slot }, line);
            }
            None if self.outside.is_none() => {
                let symbol = self.global(code, name);
                code.put(Op::Define(symbol), line);
            }
            None => return Err(not_here()),
        }
        self.nothing(code, line);
        Ok(())
    }

    fn set(&mut self, code: &mut Builder<'gc>, line: u32, forms: &[Form]) -> Result<(), Fault> {
        let [target, value] = forms else {
            return Err(Fault::new(line, "set! is (set! name value)"));
        };
        let name = symbol(target, "set! is (set! name value)")?;
        self.expression(code, value, false)?;
        let op = match self.place(line, name)? {
            Some((up, slot)) => Op::SetVariable { up, slot },
            None => Op::SetGlobal(self.global(code, name)),
        };
        code.put(op, line);
        self.nothing(code, line);
        Ok(())
    }
}

fn one<'a>(line: u32, name: &str, forms: &'a [Form]) -> Result<&'a Form, Fault> {
    match forms {
        [form] => Ok(form),
        _ => Err(Fault::new(line, format!("{name} takes one form"))),
    }
}

fn symbol<'a>(form: &'a Form, message: &str) -> Result<&'a str, Fault> {
    match &form.kind {
        Kind::Symbol(name) => Ok(name),
        _ => Err(Fault::new(form.line, message)),
    }
}

/// Parses `((name value) ...)`.
fn pairs(form: &Form) -> Result<Vec<(&str, &Form)>, Fault> {
    let wrong = |form: &Form| Fault::new(form.line, "let needs ((name value) ...)");
    let Kind::List(forms) = &form.kind else {
        return Err(wrong(form));
    };
    let mut pairs = Vec::with_capacity(forms.len());
    for form in forms {
        let Kind::List(pair) = &form.kind else {
            return Err(wrong(form));
        };
        let [name, value] = pair.as_slice() else {
            return Err(wrong(form));
        };
        pairs.push((symbol(name, "a variable is a symbol")?, value));
    }
    Ok(pairs)
}

/// Adds the names that the forms of a body define, which are variables of its frame.
fn add_definitions(names: &mut Vec<String>, body: &[Form]) {
    for form in body {
        let Kind::List(forms) = &form.kind else {
            continue;
        };
        let [head, target, ..] = forms.as_slice() else {
            continue;
        };
        if head.kind != Kind::Symbol("define".to_owned()) {
            continue;
        }
        let target = match &target.kind {
            Kind::List(header) => header.first(),
            _ => Some(target),
        };
        if let Some(Kind::Symbol(name)) = target.map(|target| &target.kind) {
            names.push(name.clone());
        }
    }
}
