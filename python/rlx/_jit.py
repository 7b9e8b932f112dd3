"""jit: functions of Python, traced and compiled, kept by the types of their arguments.

Calls that differ in nothing but sizes are a *family*. Its first program is made for the sizes as they are. When an axis
comes with a second size, the next program has a symbol there and serves all its sizes; 0 and 1 are always numbers.
A symbol that the function asks for its number (`int(x.shape[0])`) pins its axis: from then on there is a program for
each of its sizes. So does what goes wrong with symbols and not with numbers. Each axis has a symbol of its own; where
that fails and axes have always been equal, these share one. Where a trace took another way than these sizes would
(`x[:100]` is all of x, or is not), there is a program with symbols for each way. Sizes for which a program with symbols
has no meaning (two that must be equal are not) get one of their own, whose tracing then says what is wrong, if anything
is.

Threads that need the same program wait for the one that makes it. Only those wait that are making none themselves, so
that no two wait for each other, whatever traced functions call.
"""

import functools
import inspect
import itertools
import re
import threading
import time
from collections import OrderedDict, deque, namedtuple

from rlx import _core
from rlx._array import Array
from rlx._dims import LEAST, Dim, Pin, Symbols, holds, tracing
from rlx._errors import Error, UserError, checked_budget
from rlx._transforms import _argument, _check_function, _name, trace
from rlx._tree import converted, flatten, paths, typed, unflatten

CacheInfo = namedtuple("CacheInfo", "hits compilations programs")
_RECORDS = 256  # compilations that explain() remembers
_SIZES = 1000  # sizes that are counted of one program
_WAYS = 8  # programs with the same symbols, for as many ways that traces took
_PATIENCE = 30.0  # seconds that a thread waits for another's program: what is traced might wait for that thread
_serial = itertools.count()


class _Call(namedtuple("_Call", "f key leaves sizes family")):
    """A call for which there is no program yet."""

    __slots__ = ()
    tree = property(lambda self: self.key[1])


class _Work:
    """A program that a thread is making: for these sizes, or (None) perhaps for all."""

    __slots__ = ("sizes",)
    mine = threading.local()  # count: how many this thread is making


class _Compilation:
    """One program of a function: for which types, why, how long it took, and how often it was used."""

    __slots__ = ("guards", "hits", "names", "seconds", "sizes", "symbolic", "types", "why")

    def __init__(self, types, why, names, guards, seconds):
        self.types, self.why, self.seconds = types, why, seconds
        self.symbolic, self.names, self.guards = any(names), names, guards
        self.hits, self.sizes = 0, set()

    def broken(self, sizes):
        """What is taken for granted and not true for these sizes; None: nothing is."""
        by_name = {name: n for name, n in zip(self.names, sizes) if name}
        for guard in self.guards:
            if not holds(guard, by_name):
                a, b, answer = guard
                return _plain(f"{a} {'<=' if answer else '>'} {b}")
        return None

    def used(self, sizes):
        self.hits += 1
        if self.symbolic and len(self.sizes) < _SIZES:
            self.sizes.add(sizes)

    def as_dict(self):
        return {
            "types": self.types, "why": self.why, "symbolic": self.symbolic, "seconds": self.seconds,
            "sizes": len(self.sizes) if self.symbolic else 1, "hits": max(self.hits - 1, 0),
        }  # fmt: skip

    def __str__(self):
        d = self.as_dict()
        count = f"{d['sizes']}{' or more' if d['sizes'] >= _SIZES else ''} size{'s' * (d['sizes'] != 1)}"
        return f"{self.types}: {self.why}; {self.seconds:.3f} s, {count}, {d['hits']} hit{'s' * (d['hits'] != 1)}"


class _Family:
    """What a function knows of its calls with arguments of the same structure, dtypes and ranks.

    Axes are numbered through all arguments. Changed under the function's lock; what calls read is replaced by new.
    """

    __slots__ = (
        "axes", "first", "free", "lost", "pins", "programs", "proven", "start", "stuck", "united", "varies", "works",
    )  # fmt: skip

    def __init__(self, leaves, sizes):
        self.axes = [(i, axis) for i, x in enumerate(leaves) for axis in range(x.ndim)]
        self.start = sizes  # of the first call
        self.first = [None] * len(sizes)  # the first size of at least LEAST
        self.varies = set()  # axes with two such sizes
        self.pins = {}  # axis: why it must be a number
        self.proven = frozenset()  # axes that were symbols of a program that works
        self.united = False  # whether axes that have always been equal share a symbol
        self.free = None  # by axis, whether it is a symbol now; None: no axis is
        self.programs = {}  # by sizes, None for those that are symbols: a _core.KeptFunction for each way
        self.stuck = {}  # the same, of those that have no further ways: why
        self.lost = {}  # the same: how many ways were compiled in vain
        self.works = []  # what threads are making

    def name(self, axis):
        i, along = self.axes[axis]
        return f"axis {along} of x{i}"

    def find(self, sizes):
        """(program, captured arrays, structure of the results, compilation) for these sizes; None: there is none."""
        entry = self.exact(sizes)
        if entry is None and self.free is not None:
            for kept in self.programs.get(self.pattern(sizes), ()):
                entry = kept.use()
                if entry is not None and (not entry[3].guards or entry[3].broken(sizes) is None):
                    return entry
            return None
        return entry

    def exact(self, sizes):
        """As find(), of programs for these numbers."""
        kept = self.programs.get(sizes)
        return None if kept is None else kept[0].use()

    def pattern(self, sizes):
        return tuple([None if f and n >= LEAST else n for f, n in zip(self.free, sizes)])

    def ways(self, sizes):
        """The guard of each program that would have symbols where these sizes are, and is not for them."""
        if self.free is None or None not in (pattern := self.pattern(sizes)):
            return []
        entries = [kept.use() for kept in self.programs.get(pattern, ())]
        return [entry[3].broken(sizes) for entry in entries if entry is not None]

    def note(self, sizes):
        """Counts the sizes of a call for which there is no program; says what is new about them."""
        news = []
        for axis, n in enumerate(sizes):
            if n < LEAST:
                if n != self.start[axis]:
                    news.append(f"{self.name(axis)} is {n}, before {self.start[axis]}")
            elif self.first[axis] is None:
                self.first[axis] = n
                if n != self.start[axis]:
                    news.append(f"{self.name(axis)} is {n}, before {self.start[axis]}")
            elif self.first[axis] != n and axis not in self.varies:
                self.varies.add(axis)
                news.append(f"{self.name(axis)} had a second size: {self.first[axis]}, then {n}")
        self._settle()
        return news

    def pin(self, axes, why):
        for axis in axes:
            self.pins.setdefault(axis, why)
        self._settle()

    def _settle(self):
        free = tuple([axis in self.varies and axis not in self.pins for axis in range(len(self.axes))])
        self.free = free if any(free) else None

    def pinned(self, sizes):
        """Why axes that change are numbers."""
        return [f"{self.name(axis)} is {sizes[axis]}, {why}" for axis, why in self.pins.items() if axis in self.varies]

    def names(self, sizes):
        """By axis, the symbol of a new trace, None for a number; None: all are numbers."""
        free = self.free
        if free is None or not any(f and n >= LEAST for f, n in zip(free, sizes)):
            return None
        serial, known, names = next(_serial), {}, []
        for axis, (f, n) in enumerate(zip(free, sizes)):
            same = self.alike(axis, sizes) if self.united else axis
            names.append(known.setdefault(same, f"n{len(known)}_{serial}") if f and n >= LEAST else None)
        return names

    def alike(self, axis, sizes):
        """Equal for axes that have had equal sizes."""
        return self.first[axis], sizes[axis]

    def shapes(self, sizes, names):
        """The shape of each argument, with symbols."""
        shapes = {}
        for (i, _), n, name in zip(self.axes, sizes, names):
            shapes.setdefault(i, []).append(n if name is None else Dim(name))
        return shapes


def _plain(text):
    """Symbols as explain() shows them, without the number of their trace."""
    return re.sub(r"\b(n\d+)_\d+", r"\1", text)


def _described(leaves, names):
    """The types of arguments, with symbols; names are by axis."""
    at, parts = 0, []
    for i, x in enumerate(leaves):
        sizes = [n if name is None else f"?{_plain(name)}" for n, name in zip(x.shape, names[at : at + x.ndim])]
        at += x.ndim
        parts.append(f"x{i} [{', '.join(map(str, sizes))}] {x.dtype.name}{' number' if x._weak else ''}")
    shown = parts if len(parts) <= 8 else [*parts[:7], f"{len(parts) - 7} more"]
    return ", ".join(shown) or "no arguments"


class jit:
    """Compiles a function: `jit(f)(x)` is f(x), traced and compiled on the first call with arguments of these types.
    Without f, `@rlx.jit(donate_argnums=0)`, it is a decorator with these options.

    With another size of an axis it is traced once more, with a symbol for it: inside f the size is an `rlx.Dim`, and
    further sizes compile nothing. f.explain() says what was compiled and why.

    static_argnums and static_argnames are arguments whose values (hashable) are part of the program, however they are
    passed: by place, by keyword or by default. Arrays that f uses from outside are captured at tracing; arrays are
    immutable, but a variable that later names another array is not noticed.

    memory_budget is the number of bytes that the values of a run may take at once, as for `rlx.compile`; as a part of
    another function that is compiled it has no meaning, but that one's has.

    donate_argnums and donate_argnames are arguments (trees of arrays) that are given away: f writes results of as many
    bytes into their memory, so that `params, state = step(params, state, batch)` needs no second set of weights. After
    the call, also one that fails once it has begun, their arrays are gone: reading one raises "donated". Results have
    the same bits. What something else can see (a reshaped array, a NumPy view, another argument, another thread's run) is
    copied instead, and what no result can use is dropped; a warning says either once. As a part of another function
    that is traced, donation has no meaning.

    All functions together keep programs and captured arrays of 512 MiB, those used last; what was dropped is traced and
    compiled again when it is called.
    """

    def __new__(cls, *f, **options):
        return super().__new__(cls) if f or "f" in options else functools.partial(cls, **options)

    def __init__(
        self, f, static_argnums=(), static_argnames=(), memory_budget=0, donate_argnums=(), donate_argnames=()
    ):
        _check_function("jit", f)
        self._memory_budget = checked_budget("jit", memory_budget)
        functools.update_wrapper(self, f)
        self._f = f
        numbers, names = _numbers_and_names(static_argnums, static_argnames)
        self._signature, self._static = _static_parameters(f, numbers, names) if numbers or names else (None, ())
        numbers, names = _numbers_and_names(donate_argnums, donate_argnames)
        self._donated = _donated_arguments(f, numbers, names, self._static) if numbers or names else None
        self._families = {}
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)  # what threads are making
        self._full = 64  # at so many programs those that were dropped are swept
        self._records = deque(maxlen=_RECORDS)
        self._compilations = 0
        self._swept_hits = 0  # of compilations that explain() has forgotten

    def __get__(self, obj, cls=None):
        return self if obj is None else functools.partial(self, obj)

    def _split(self, args, kwargs):
        """(f of the other arguments by name, the static ones, the others by name)."""
        bound = self._signature.bind(*args, **kwargs)
        parameters = self._signature.parameters
        static = {n: bound.arguments.get(n, parameters[n].default) for n in self._static}
        static = {n: v for n, v in static.items() if v is not inspect.Parameter.empty}
        others = {n: v for n, v in bound.arguments.items() if n not in static}

        def f(**others):
            values = {n: (others | static)[n] for n in parameters if n in others or n in static}
            call = inspect.BoundArguments(self._signature, OrderedDict(values))
            return self._f(*call.args, **call.kwargs)

        f.__name__ = _name(self._f)
        for n, v in static.items():
            try:
                hash(v)
            except TypeError:
                raise TypeError(f"{_name(self._f)}: the static argument {n} must be hashable, not {v!r}") from None
        return f, tuple((n, typed(v)) for n, v in static.items()), others

    def __call__(self, *args, **kwargs):
        f, static = self._f, None
        if self._static:
            f, static, kwargs = self._split(args, kwargs)
            args = ()
        leaves, tree = flatten((args, kwargs))
        if not all([type(x) is Array for x in leaves]):
            leaves = converted(leaves, tree, _argument, "argument")
        types = _core.types_key(leaves)
        if types is None:  # part of a program around it
            return self._inline(trace(f, leaves, tree), leaves)
        kinds, sizes = types
        key = (kinds, tree, static, _core.device_for(leaves))
        family = self._families.get(key)
        entry = None if family is None else family.find(sizes)
        if entry is None:
            return self._compile(f, key, leaves, sizes)
        done, result = self._run(entry, leaves, sizes)
        return result if done else self._compile(f, key, leaves, sizes, result)

    def _run(self, entry, leaves, sizes):
        """(True, the result), or (False, why not): a program with symbols has no meaning for these sizes."""
        program, captured, out_tree, compilation = entry
        inputs = leaves + captured if captured else leaves
        if not compilation.symbolic:
            outs = program.run(inputs)
        else:
            outs = program.run_guarded(inputs)
            if isinstance(outs, str):
                return False, _plain(outs)
        compilation.used(sizes)
        return True, unflatten(out_tree, outs)

    def _inline(self, traced, leaves):
        return unflatten(traced.out_tree, _core.call_graph(traced.graph, leaves + traced.captured))

    # ---- compiling

    def _compile(self, f, key, leaves, sizes, broken=None):
        """For sizes that no program is there for, unless another thread makes it meanwhile. broken: why the one with
        symbols has no meaning for them; then for these numbers."""
        call, entry, work, why = self._begin(f, key, leaves, sizes, broken)
        if entry is not None:
            done, result = self._run(entry, leaves, sizes)
            return result if done else self._compile(f, key, leaves, sizes, result)
        _Work.mine.count = getattr(_Work.mine, "count", 0) + 1
        try:
            return self._numbers(call, why, work) if broken else self._make(call, work, why)
        finally:
            _Work.mine.count -= 1
            with self._changed:
                call.family.works.remove(work)
                self._changed.notify_all()

    def _begin(self, f, key, leaves, sizes, broken):
        """(call, what another thread has made, None, None) or (call, None, what this one makes, why)."""
        with self._changed:
            family = self._families.get(key)
            why = [] if family else [self._new_family(key)]
            family = family or self._families.setdefault(key, _Family(leaves, sizes))
            call = _Call(f, key, leaves, sizes, family)
            end = time.monotonic() + _PATIENCE
            while True:
                entry = family.exact(sizes) if broken else family.find(sizes)
                if entry is not None:
                    return call, entry, None, None
                wanted = any(w.sizes is None or w.sizes == sizes for w in family.works)
                if not wanted or getattr(_Work.mine, "count", 0):
                    break
                if not self._changed.wait(end - time.monotonic()):
                    break
            broken = [broken] if broken else family.ways(sizes)
            why += family.note(sizes) + [f"a guard is broken ({guard})" for guard in broken[-1:]]
            work = _Work()
            work.sizes = sizes if family.free is None else None
            family.works.append(work)
            return call, None, work, why

    def _make(self, call, work, why):
        """With symbols where axes have changed."""
        f, _, leaves, sizes, family = call
        while (names := family.names(sizes)) is not None:
            ways, pattern = family.ways(sizes), family.pattern(sizes)
            if ways and (pattern in family.stuck or len(ways) + family.lost.get(pattern, 0) >= _WAYS):
                return self._numbers(call, [*why, *family.stuck.get(pattern, ())], work)
            alike = None if family.united else {n: family.alike(a, sizes) for a, n in enumerate(names) if n}
            symbols = Symbols({name: n for name, n in zip(names, sizes) if name}, alike)
            made, failure = self._symbolic(call, names, symbols)
            unites = failure is not None and alike and len(set(alike.values())) < len(alike)
            if ways and (symbols.pins or (failure is not None and not unites)):  # the other ways stay
                family.stuck[pattern] = [f"with a symbol {failure}"]
            elif symbols.pins:
                with self._lock:
                    for name, reason in symbols.pins.items():
                        family.pin([a for a, n in enumerate(names) if n == name], f"pinned by {reason}")
            elif unites:
                family.united = True
            elif failure is not None:
                return self._give_up(call, names, failure, why)
            elif made is None:  # part of a program around it
                return self._inline(trace(f, leaves, call.tree), leaves)
            else:
                return self._proven(call, names, made, why + family.pinned(sizes), work)
        return self._numbers(call, why + family.pinned(sizes), work)

    def _program(self, call, traced):
        device = _core.device_for(call.leaves + traced.captured)
        donated = self._given_away(call) if self._donated else []
        names = [paths(call.tree)[i].partition(".")[2] for i in donated]
        return _core.compile_cached(traced.graph, device, self._memory_budget, _name(self._f), donated, names)

    def _given_away(self, call):
        """The leaves that are donated, by number."""
        places, further, keywords, donated = self._donated
        args, kwargs = unflatten(call.tree, range(len(call.leaves)))  # a tree of the leaves' numbers
        if self._static:  # all arguments come by name
            args = [None] * len(places) + list(kwargs.pop(further, ()))
            kwargs |= kwargs.pop(keywords, {})
        arguments = [*zip([*places, *range(len(places), len(args))], args), *kwargs.items()]
        return sorted(i for name, tree in arguments if name in donated for i in flatten(tree)[0])

    def _symbolic(self, call, names, symbols):
        """(what _keep keeps, None); (None, why not); (None, None) for a part of a program around it."""
        start, shapes = time.perf_counter(), call.family.shapes(call.sizes, names)
        try:
            with tracing(symbols):
                traced = trace(call.f, call.leaves, call.tree, shapes=[shapes.get(i) for i in range(len(call.leaves))])
            if symbols.pins or symbols.unites:  # the function has caught what we raised
                return None, "its number is asked for"
            if any(x._traced for x in traced.captured):
                return None, None
            program = self._program(call, traced)
        except Pin as e:
            return None, f"its number is asked for ({e})"
        except Exception as e:  # whatever it is: numbers will tell whether the call is wrong
            return None, _plain(f"it fails ({e.message if isinstance(e, Error) else repr(e)})")
        if program.per_size:
            return None, _plain(f"an op needs its number ({program.per_size})")
        made = (program, traced.captured, traced.out_tree, symbols.guards, time.perf_counter() - start)
        return made, None

    def _proven(self, call, names, made, why, work):
        """Keeps a program with symbols and runs it; one for another way only if it has a meaning for these sizes."""
        entry, is_first = self._entry(call, names, made, why), not call.family.ways(call.sizes)
        if is_first:
            self._keep(call, names, entry)
        done, result = self._run(entry, call.leaves, call.sizes)
        if not is_first and done:
            self._keep(call, names, entry)
        elif not is_first:
            pattern = call.family.pattern(call.sizes)
            call.family.lost[pattern] = call.family.lost.get(pattern, 0) + 1
        return result if done else self._numbers(call, [f"a guard is broken ({result})"], work)

    def _give_up(self, call, names, failure, why):
        """A program for numbers; if that works, the axes that are symbols for the first time will be numbers."""
        axes = {axis for axis, name in enumerate(names) if name}
        reason = f"a number because with a symbol {failure}"
        news = axes - call.family.proven or axes
        why = why + [f"{call.family.name(axis)} is {call.sizes[axis]}, {reason}" for axis in sorted(news)]
        result = self._numbers(call, why)
        with self._lock:
            call.family.pin(news, reason)
        return result

    def _numbers(self, call, why, work=None):
        """Keeps a program for the sizes as they are, and runs it. work: of which that is all, for who waits."""
        if work is not None and work.sizes is None:
            with self._changed:
                work.sizes = call.sizes
                self._changed.notify_all()
        start = time.perf_counter()
        traced = trace(call.f, call.leaves, call.tree)
        if any(x._traced for x in traced.captured):
            return self._inline(traced, call.leaves)
        program = self._program(call, traced)
        made = (program, traced.captured, traced.out_tree, (), time.perf_counter() - start)
        names = [None] * len(call.sizes)
        entry = self._entry(call, names, made, why)
        self._keep(call, names, entry)
        return self._run(entry, call.leaves, call.sizes)[1]

    def _new_family(self, key):
        """What is new about the arguments, besides sizes."""
        if not self._families:
            return "first call" if not self._compilations else "it was dropped"
        last = next(reversed(self._families))
        names = ("other dtypes or ranks", "other structure", "other static arguments", "other device")
        return " and ".join(name for name, a, b in zip(names, last, key) if a != b) or "it was dropped"

    def _entry(self, call, names, made, why):
        program, captured, out_tree, guards, seconds = made
        why = "; ".join(why) or "it was dropped"
        return program, captured, out_tree, _Compilation(_described(call.leaves, names), why, names, guards, seconds)

    def _keep(self, call, names, entry):
        pattern = tuple([n if name is None else None for n, name in zip(call.sizes, names)])
        kept, compilation = _core.KeptFunction(entry), entry[3]
        with self._lock:
            call.family.proven |= {axis for axis, name in enumerate(names) if name}
            self._compilations += 1
            if len(self._records) == _RECORDS:
                self._swept_hits += max(self._records[0].hits - 1, 0)
            self._records.append(compilation)
            programs = self._families.setdefault(call.key, call.family).programs
            ways = [k for k in programs.get(pattern, ()) if k.is_kept] if any(names) else []
            programs[pattern] = (*ways, kept)
            if sum(len(g.programs) for g in self._families.values()) >= self._full:
                self._sweep()

    def _sweep(self):
        for family in self._families.values():
            family.programs = {k: v for k, v in family.programs.items() if any(p.is_kept for p in v)}
        self._families = {k: g for k, g in self._families.items() if g.programs or g.works}
        self._full = max(64, 2 * sum(len(g.programs) for g in self._families.values()))

    # ---- what is known

    def cache_info(self):
        """(hits, compilations, programs): calls that found a program, programs made, programs that are kept."""
        with self._lock:
            hits = self._swept_hits + sum(max(r.hits - 1, 0) for r in self._records)
            kept = sum(p.is_kept for g in self._families.values() for v in g.programs.values() for p in v)
            return CacheInfo(hits, self._compilations, kept)

    def explain(self, as_dict=False):
        """What was compiled, in order, and why: a line for each compilation (the last 256), with the types of the
        arguments (x0, x1, .. are the leaves, ?n0, ?n1, .. sizes of which the program takes any), the seconds that
        tracing and compiling took, how many sizes it was run at and how often it was found. With as_dict a list of
        dicts."""
        with self._lock:
            records = list(self._records)
        if as_dict:
            return [r.as_dict() for r in records]
        head = f"{_name(self._f)}: {self._compilations} compilation{'s' * (self._compilations != 1)}"
        before = self._compilations - len(records)
        return "\n".join([head, *(f"{before + i + 1}. {r}" for i, r in enumerate(records))])

    def graph(self, *args, **kwargs):
        """The graph of the function on arguments of these types, as an `rlx.Graph`: its inputs x0, x1, .. are the
        leaves of the arguments, and arrays that the function uses from outside are constants in it."""
        from rlx._graph import Graph

        f = self._f
        if self._static:
            f, _, kwargs = self._split(args, kwargs)
            args = ()
        leaves, tree = flatten((args, kwargs))
        traced = trace(f, converted(leaves, tree, _argument, "argument"), tree)
        if any(x._traced for x in traced.captured):
            raise UserError(
                "trace-value", f"graph: {_name(self._f)} uses an array of the function being traced around it"
            )
        return Graph._of(traced.graph.with_constants(len(leaves), traced.captured))


jit.__new__.__signature__ = inspect.signature(jit.__init__)  # what help() shows


def _numbers_and_names(argnums, argnames):
    numbers = (argnums,) if isinstance(argnums, int) else tuple(argnums)
    return numbers, (argnames,) if isinstance(argnames, str) else tuple(argnames)


def _donated_arguments(f, numbers, names, static):
    """(the parameters of f that have a place, its names for further arguments and for further keywords or None, what is
    donated: names, and places of further arguments)."""
    try:
        parameters = inspect.signature(f).parameters
    except ValueError:
        raise UserError(
            "argnums", f"jit: {_name(f)} has no signature that could say which arguments are donated"
        ) from None
    p = inspect.Parameter
    places, further, keywords = (
        [n for n in parameters if parameters[n].kind in kinds]
        for kinds in ((p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD), (p.VAR_POSITIONAL,), (p.VAR_KEYWORD,))
    )
    donated = set()
    for i in numbers:
        at = i + len(places) if i < 0 and not further else i
        if at < 0 or (at >= len(places) and not further):
            raise UserError("argnums", f"jit: {_name(f)} has no argument {i} that could be donated")
        donated.add(places[at] if at < len(places) else at)
    for n in names:
        if n in further + keywords or (n not in parameters and not keywords):
            raise UserError("argnums", f"jit: {_name(f)} has no argument {n!r} that could be donated")
        donated.add(n)
    for n in static:
        if n in donated:
            raise UserError("argnums", f"jit: {_name(f)}: the argument {n} is static, which cannot be donated")
    return places, (*further, None)[0], (*keywords, None)[0], frozenset(donated)


def _static_parameters(f, numbers, names):
    """f's signature and the names of its static parameters."""
    try:
        signature = inspect.signature(f)
    except ValueError:
        raise UserError(
            "static", f"jit: {_name(f)} has no signature that could say which arguments are static"
        ) from None
    kinds = {n: p.kind for n, p in signature.parameters.items()}
    by_place = [
        n for n, kind in kinds.items() if kind not in (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.VAR_KEYWORD)
    ]
    static = []
    for i in numbers:
        if not -len(by_place) <= i < len(by_place):
            raise UserError("argnums", f"jit: {_name(f)} has no argument {i} that could be static")
        static.append(by_place[i])
    for n in names:
        if n not in kinds:
            raise UserError("argnums", f"jit: {_name(f)} has no argument {n!r} that could be static")
        static.append(n)
    return signature, tuple(n for n in kinds if n in static)
