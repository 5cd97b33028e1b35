# SPDX-License-Identifier: Apache-2.0
"""Turns the Python function of a kernel into one that runs for all programs of a group at once.

Operators, calls, subscripts and attributes become calls of the engine (`_engine`), which hands them to triton's own
language with the engine's builder: nothing of triton is replaced while a kernel runs. Statements that may go different
ways in different programs become loops over the ways:

    if test:                   for names in (way := _engine.branch(test, names)):   # one or two ways
        body           ->          if way.taken: body
    else:                          else: orelse
        orelse                     way.end(names)
                               names = way.values

A way sees the values of its programs only, so no instruction runs twice and no store is doubled. `for` and `while`
drop the programs that have finished and join all of them at the end. Line numbers are those of the source.
"""

import ast
import inspect
import textwrap

ENGINE = "_engine"
BINARY = {
    ast.Add: "add",
    ast.Sub: "sub",
    ast.Mult: "mul",
    ast.Div: "truediv",
    ast.FloorDiv: "floordiv",
    ast.Mod: "mod",
    ast.Pow: "pow",
    ast.LShift: "lshift",
    ast.RShift: "rshift",
    ast.BitAnd: "and",
    ast.BitOr: "or",
    ast.BitXor: "xor",
    ast.MatMult: "matmul",
}
COMPARE = {ast.Eq: "eq", ast.NotEq: "ne", ast.Lt: "lt", ast.LtE: "le", ast.Gt: "gt", ast.GtE: "ge"}
UNARY = {ast.USub: "neg", ast.Invert: "invert", ast.UAdd: "pos"}
STOPS = ("breakpoint", "set_trace")  # debuggers stop in the frame that calls them


class UnsupportedConstruct(SyntaxError):
    """A statement that Triton's compiler does not take either."""


def _load(name):
    return ast.Name(name, ast.Load())


def _engine(method, *args):
    return ast.Call(ast.Attribute(_load(ENGINE), method, ast.Load()), list(args), [])


def _names(names, context):
    return ast.Tuple([ast.Name(name, context()) for name in names], context())


def _method(name, method, *args):
    return ast.Call(ast.Attribute(_load(name), method, ast.Load()), list(args), [])


def _attribute(name, attribute):
    return ast.Attribute(_load(name), attribute, ast.Load())


def _assign(target, value):
    return ast.Assign([target], value)


def _contains(node, kind):
    nodes = node if isinstance(node, list) else [node]
    return any(isinstance(found, kind) for top in nodes for found in ast.walk(top))


class Rewriter(ast.NodeTransformer):
    def __init__(self, function: ast.FunctionDef, namespace: dict, file: str):
        self.file = file
        self.namespace = namespace
        arguments = function.args
        self.parameters = [arg.arg for arg in arguments.posonlyargs + arguments.args + arguments.kwonlyargs]
        if arguments.vararg:
            self.parameters.append(arguments.vararg.arg)
        stored = [
            node.id for node in ast.walk(function) if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store)
        ]
        self.new = [name for name in dict.fromkeys(stored) if name not in self.parameters]
        self.names = self.parameters + self.new
        self.constants = set()  # names that are annotated before they are assigned
        self.count = 0
        self.ways = 0  # depth of `if`
        self.loops = 0  # depth of `for` and `while`

    def function(self, node: ast.FunctionDef) -> ast.FunctionDef:
        body = self.block(node.body)
        if self.new:
            undefined = [ast.Name(name, ast.Store()) for name in self.new]
            body.insert(0, ast.Assign(undefined, _attribute(ENGINE, "undefined")))
        arguments = ast.arguments(
            posonlyargs=[],
            args=[ast.arg(name) for name in self.parameters],
            vararg=None,
            kwonlyargs=[],
            kw_defaults=[],
            kwarg=None,
            defaults=[],
        )
        body.append(ast.Return(_engine("finish", ast.Constant(None))))
        return ast.FunctionDef(name=node.name, args=arguments, body=body, decorator_list=[], returns=None)

    def fresh(self, prefix):
        self.count += 1
        return f"_{prefix}{self.count}"

    def fail(self, node, message):
        raise UnsupportedConstruct(message, (self.file, node.lineno, node.col_offset + 1, None))

    def block(self, statements) -> list:
        result = []
        for statement in statements:
            new = self.visit(statement)
            new = new if isinstance(new, list) else [new]
            for part in new:
                ast.copy_location(part, statement)
                _locate(part, statement)
            result += new
            if isinstance(statement, ast.Return):
                break
        return result or [ast.Pass()]

    # statements

    def visit_Return(self, node):
        if self.loops:
            self.fail(node, "Cannot have `return` statements inside `while` or `for` statements in triton.")
        value = self.visit(node.value) if node.value else ast.Constant(None)
        if self.ways:
            return ast.Expr(_engine("leave", value))
        return ast.Return(_engine("finish", value))

    def visit_If(self, node):
        way = self.fresh("way")
        test = self.visit(node.test)
        self.ways += 1
        body, orelse = self.block(node.body), self.block(node.orelse)
        self.ways -= 1
        branch = _assign(ast.Name(way, ast.Store()), _engine("branch", test, _names(self.names, ast.Load)))
        loop = ast.For(
            target=_names(self.names, ast.Store),
            iter=_load(way),
            body=[
                ast.If(_attribute(way, "taken"), body, orelse),
                ast.Expr(_method(way, "end", _names(self.names, ast.Load))),
            ],
            orelse=[],
        )
        after = []
        if _contains(node.body + node.orelse, ast.Return):
            gone = ast.Continue() if self.ways else ast.Return(_engine("result"))
            after = [ast.If(_attribute(way, "left"), [gone], [])]
        return [branch, loop, *after, _assign(_names(self.names, ast.Store), _attribute(way, "values"))]

    def visit_For(self, node):
        if node.orelse:
            self.fail(node, "`for` with `else` is not supported in triton")
        loop = self.fresh("loop")
        steps = self.visit(node.iter)
        # The body's block is a `while` of Python: `continue` of ways within it would repeat it.
        self.loops, ways, self.ways = self.loops + 1, self.ways, 0
        target = self.visit(node.target)
        body = self.block(node.body)
        self.loops, self.ways = self.loops - 1, ways
        return [
            _assign(ast.Name(loop, ast.Store()), _engine("loop", steps, ast.Constant(self.names.index(target.id)))),
            ast.While(
                _method(loop, "next", _names(self.names, ast.Load)),
                [
                    _assign(_names(self.names, ast.Store), _attribute(loop, "values")),
                    _assign(target, _attribute(loop, "index")),
                    *body,
                ],
                [],
            ),
            _assign(_names(self.names, ast.Store), _attribute(loop, "values")),
        ]

    def visit_While(self, node):
        if node.orelse:
            self.fail(node, "`while` with `else` is not supported in triton")
        loop = self.fresh("loop")
        test = self.visit(node.test)
        self.loops, ways, self.ways = self.loops + 1, self.ways, 0
        body = self.block(node.body)
        self.loops, self.ways = self.loops - 1, ways
        return [
            _assign(ast.Name(loop, ast.Store()), _engine("while_")),
            ast.While(
                _method(loop, "test", test, _names(self.names, ast.Load)),
                [_assign(_names(self.names, ast.Store), _attribute(loop, "values")), *body],
                [],
            ),
            _assign(_names(self.names, ast.Store), _attribute(loop, "values")),
        ]

    def visit_Assign(self, node):
        if len(node.targets) != 1:
            self.fail(node, "Simultaneous multiple assignment is not supported in triton")
        target, value = node.targets[0], self.visit(node.value)
        if not (isinstance(target, ast.Name) and target.id in self.constants):
            value = _engine("value", value)
        return _assign(self.visit(target), value)

    def visit_AnnAssign(self, node):
        is_constant = "constexpr" in ast.unparse(node.annotation)
        if node.value is None:
            if is_constant:
                self.constants.add(node.target.id)
            return ast.Pass()
        value = self.visit(node.value)
        if not is_constant:
            value = _engine("value", value)
        return _assign(self.visit(node.target), value)

    def visit_AugAssign(self, node):
        old = ast.copy_location(ast.Name(node.target.id, ast.Load()), node.target)
        return self.visit_Assign(
            ast.copy_location(
                ast.Assign([node.target], ast.copy_location(ast.BinOp(old, node.op, node.value), node)), node
            )
        )

    def visit_Assert(self, node):
        test = self.visit(node.test)
        return ast.Expr(_engine("check", test, self.visit(node.msg) if node.msg else ast.Constant("")))

    def visit_Raise(self, node):
        """The compiler takes it where a constant keeps every program from it; here a program may come to it."""
        return ast.Raise(self.visit(node.exc), None) if node.exc else node

    def visit_With(self, node):
        for item in node.items:
            item.context_expr = _engine("context", self.visit(item.context_expr))
        node.body = self.block(node.body)
        return node

    def _unsupported(self, node):
        self.fail(node, f"unsupported AST node type: {type(node).__name__}")

    visit_Break = visit_Continue = visit_Try = visit_FunctionDef = visit_ClassDef = _unsupported
    visit_Lambda = visit_Global = visit_Nonlocal = visit_Delete = _unsupported

    # expressions

    def visit_BinOp(self, node):
        return _engine("binary", ast.Constant(BINARY[type(node.op)]), self.visit(node.left), self.visit(node.right))

    def visit_UnaryOp(self, node):
        if isinstance(node.op, ast.Not):
            return _engine("not_", self.visit(node.operand))
        if isinstance(node.operand, ast.Constant):
            return node
        return _engine("unary", ast.Constant(UNARY[type(node.op)]), self.visit(node.operand))

    def visit_BoolOp(self, node):
        values = [self._later(value) for value in node.values]
        return _engine("and_" if isinstance(node.op, ast.And) else "or_", *values)

    def _later(self, node):
        """A lambda of the names in an expression, so that it sees what a way gives it."""
        names = [
            name for name in self.names if name in {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
        ]
        arguments = ast.arguments(
            posonlyargs=[], args=[ast.arg(name) for name in names], vararg=None, kwonlyargs=[], kw_defaults=[],
            kwarg=None, defaults=[],
        )  # fmt: skip
        return ast.Tuple([ast.Lambda(arguments, self.visit(node)), _names(names, ast.Load)], ast.Load())

    def visit_IfExp(self, node):
        return _engine("choose", self.visit(node.test), self._later(node.body), self._later(node.orelse))

    def visit_Compare(self, node):
        operands = [self.visit(value) for value in [node.left, *node.comparators]]
        if len(node.ops) == 1:
            return self._compare(node.ops[0], *operands)
        names = [self.fresh("operand") for _ in operands]
        kept = [ast.NamedExpr(ast.Name(name, ast.Store()), value) for name, value in zip(names, operands, strict=True)]
        parts = [self._compare(node.ops[0], kept[0], kept[1])]
        parts += [
            self._compare(op, _load(name), value)
            for op, name, value in zip(node.ops[1:], names[1:-1], kept[2:], strict=True)
        ]
        return _engine("all_", *parts)

    def _compare(self, op, left, right):
        if type(op) in COMPARE:
            return _engine("compare", ast.Constant(COMPARE[type(op)]), left, right)
        name = {ast.Is: "is_", ast.IsNot: "is_not", ast.In: "in_", ast.NotIn: "not_in"}[type(op)]
        return _engine(name, left, right)

    def visit_Subscript(self, node):
        if isinstance(node.ctx, ast.Store):
            self.fail(node, "__setitem__ is not supported in triton")
        return _engine("subscript", self.visit(node.value), self.visit(node.slice))

    def visit_Slice(self, node):
        parts = [self.visit(part) if part else ast.Constant(None) for part in (node.lower, node.upper, node.step)]
        return _engine("slice", *parts)

    def visit_Attribute(self, node):
        if isinstance(node.ctx, ast.Store):
            self.fail(node, "Attribute assignment is not supported in triton")
        owner = node.value.id if isinstance(node.value, ast.Name) else None
        module = self.namespace.get(owner) if owner not in self.names else None
        if inspect.ismodule(module) and hasattr(module, node.attr):
            return node
        return _engine("attribute", self.visit(node.value), ast.Constant(node.attr))

    def visit_Call(self, node):
        name = getattr(node.func, "attr", getattr(node.func, "id", None))
        if name in STOPS:
            return node
        args = [self.visit(arg) for arg in node.args]
        keywords = [ast.keyword(keyword.arg, self.visit(keyword.value)) for keyword in node.keywords]
        call = _engine("call", self.visit(node.func), *args)
        call.keywords = keywords
        return call

    def visit_ListComp(self, node):
        names = {name.id for part in node.generators for name in ast.walk(part.target) if isinstance(name, ast.Name)}
        kept, self.names = self.names, [*self.names, *(names - set(self.names))]
        node = self.generic_visit(node)
        self.names = kept
        return node


def _locate(node, where):
    """Gives new nodes the line of the statement, and those of the source keep theirs."""
    for child in ast.walk(node):
        if not hasattr(child, "lineno") and "lineno" in child._attributes:
            ast.copy_location(child, where)


def compile_kernel(function, namespace: dict):
    """The function for a group of programs; its first parameter is the engine.

    Args:
        function: the plain Python function below the decorators
        namespace: its globals and the values of its closure
    """
    lines, first = inspect.getsourcelines(function)
    source = textwrap.dedent("".join(lines))
    tree = ast.parse(source)
    node = tree.body[0]
    file = function.__code__.co_filename
    ast.increment_lineno(tree, first - 1)
    free = function.__code__.co_freevars
    inner = Rewriter(node, namespace, file).function(node)
    parameters = [ENGINE, *free]
    arguments = ast.arguments(
        posonlyargs=[], args=[ast.arg(name) for name in parameters], vararg=None, kwonlyargs=[], kw_defaults=[],
        kwarg=None, defaults=[],
    )  # fmt: skip
    outer = ast.FunctionDef(
        name="_bind", args=arguments, body=[inner, ast.Return(_load(node.name))], decorator_list=[], returns=None
    )
    if hasattr(outer, "type_params"):
        outer.type_params = inner.type_params = []
    module = ast.Module([outer], [])
    for part in (outer, *outer.body, *outer.args.args, *inner.args.args):
        _locate(part, node)
    made = {}
    exec(compile(ast.fix_missing_locations(module), file, "exec"), function.__globals__, made)
    closure = [namespace[name] for name in free]
    return lambda engine: made["_bind"](engine, *closure)
