"""The builtins of BUILD and rule files, written in Starlark over a few `native__` callables.

A Python callable can neither receive nor return a Starlark function, so whatever holds one (a rule's implementation,
a provider's constructor) is a closure here; Python sees plain values and numbers that stand for rules and providers.
"""

BUILD_NAMES = ("alias", "exports_files", "filegroup", "glob", "package", "select")
BZL_NAMES = (*BUILD_NAMES, "DefaultInfo", "attr", "identity", "provider", "rule")

PRELUDE = """
# NaN is greater than any other number in Starlark, so two comparisons find NaN and both infinities. They must be
# found here: json.encode and the hand-over to Python turn them into None.
_MAX = 1.7976931348623157e308

def _check(what, value):
    kind = type(value)
    if kind == "string" or kind == "int" or kind == "bool" or kind == "NoneType":
        return
    if kind == "float":
        if value > _MAX or value < -_MAX:
            native__bad_value(what, "number", "")
    elif kind == "list" or kind == "tuple":
        for item in value:
            if type(item) != "string":
                _check(what, item)
    elif kind == "dict":
        for key, item in value.items():
            if type(key) != "string":
                native__bad_value(what, "key", repr(key))
            if type(item) != "string":
                _check(what + "." + key, item)
    elif kind == "struct":
        for key in dir(value):
            _check(what + "." + key, getattr(value, key))
    else:
        native__bad_value(what, "kind", kind)

# Single values that cross to Python and back cost a call of Python's json each, so whole structures cross as one JSON
# text, beside a list of the artifacts in them. What JSON would lose is marked: artifacts, the order of a dict's keys
# (json.decode sorts them) and integers beyond 64 bits (json.decode makes them floats).
def _taken(value, artifacts):
    kind = type(value)
    if kind == "dict":
        if len(value) == 1:
            for mark, content in value.items():
                if mark == "artifact__":
                    return artifacts[content]
                if mark == "items__":
                    return {key: _taken(item, artifacts) for key, item in content}
                if mark == "int__":
                    return int(content)
        return {key: _taken(item, artifacts) for key, item in value.items()}
    if kind == "list":
        return [_taken(item, artifacts) for item in value]
    return value

def _given(what, value, artifacts):
    kind = type(value)
    if kind == "string" or kind == "int" or kind == "bool" or kind == "NoneType":
        return value
    if kind == "list" or kind == "tuple":
        return [_given(what, item, artifacts) for item in value]
    if kind == "dict":
        for key in value:
            if type(key) != "string":
                native__bad_value(what, "key", repr(key))
        return {key: _given(what + "." + key, item, artifacts) for key, item in value.items()}
    if kind == _ARTIFACT:
        artifacts.append(value)
        return {"artifact__": len(artifacts) - 1}
    if kind == "struct":
        native__bad_value(what, "struct", "")
    _check(what, value)
    return value

_ARTIFACT = type(native__artifact())

def _declare(rule_id, args, kwargs):
    if args:
        native__positional(rule_id)
    for name, value in kwargs.items():
        if type(value) != "string":
            _check(name, value)
    native__declare(str(rule_id) + "\\n" + json.encode(kwargs) + "\\n" + str(call_stack(strip_frames = 2)))

def _native_rule(rule_id):
    def declare(*args, **kwargs):
        _declare(rule_id, args, kwargs)
    return declare

alias = _native_rule(0)
filegroup = _native_rule(1)

def rule(implementation, attrs = {}, toolchain = [], test = False, doc = "", initializer = None):
    for what, function in [("implementation", implementation), ("initializer", initializer)]:
        if type(function) != "function" and (function != None or what == "implementation"):
            native__bad_value(what, "implementation", type(function))
    _check("toolchain", toolchain)
    rule_id = native__rule(attrs, toolchain, test, doc, str(call_stack(strip_frames = 1)))
    def declare(*args, ctx__ = None, **kwargs):
        if ctx__ != None:
            return _invoke(implementation, ctx__)
        if initializer != None and not args:
            changed = initializer(kwargs)
            if type(changed) != "dict":
                native__bad_value("initializer", "initializer", type(changed))
            kwargs = changed
        return _declare(rule_id, args, kwargs)
    return declare

def _provider(provider_id, names):
    def make(*args, id__ = False, **kwargs):
        if id__:
            return provider_id
        if args:
            native__bad_field(provider_id, "")
        for name in kwargs:
            if name not in names:
                native__bad_field(provider_id, name)
        for name in names:
            kwargs.setdefault(name, None)
        return struct(provider__ = provider_id, **kwargs)
    return make

DefaultInfo = _provider(0, ["outputs"])

def provider(doc = "", *, fields):
    return _provider(native__provider(doc, fields, str(call_stack(strip_frames = 1))), list(fields))

def _attr(kind):
    def make(*args, **kwargs):
        if args:
            native__attr(kind, {"": None})
        if "providers" in kwargs:
            kwargs["providers"] = [p if type(p) == "string" else p(id__ = True) for p in kwargs["providers"]]
        for name in ("default", "values"):
            if name in kwargs:
                _check(name, kwargs[name])
        return native__attr(kind, kwargs)
    return make

attr = struct(**{kind: _attr(kind) for kind in native__attr_kinds()})

def select(branches):
    if type(branches) != "dict" or not branches:
        native__bad_value("select", "select", "")
    return [{"select__": branches}]

def glob(include, exclude = [], allow_empty = False):
    return native__glob(include, exclude, allow_empty)

def package(*, default_visibility):
    native__package(default_visibility, str(call_stack(strip_frames = 1)))

def exports_files(files):
    native__exports_files(files)

identity = native__identity

def _dep(value, artifacts):
    if value == None:
        return None
    return struct(
        label = value["label"],
        kind = value["kind"],
        **{name: struct(**_taken(fields, artifacts)) for name, fields in value["providers"].items()}
    )

def _attribute(shape, value, artifacts):
    if shape == "plain":
        return value
    if shape == "marked":
        return _taken(value, artifacts)
    if shape == "dep":
        return _dep(value, artifacts)
    if shape == "list":
        return [_dep(dep, artifacts) for dep in value]
    if shape == "dict":
        return {name: _dep(dep, artifacts) for name, dep in value}
    return [(_dep(dep, artifacts), weight) for dep, weight in value]

def _run(*args, **kwargs):
    if args:
        native__bad_value("ctx.actions.run", "positional", "")
    artifacts = []
    given = {}
    for name, value in kwargs.items():
        if name == "inputs":
            given[name] = _given(name, value, artifacts)
        else:
            _check(name, value)
            given[name] = value
    made = native__run(json.encode(given), artifacts)
    return {name: made[n] for n, name in enumerate(given["outputs"])}

def _expand(schema, value):
    _check("value", value)
    return native__expand(schema, value)

def _lock_hub(repo_type, repo_id, revision):
    return native__lock("hub", [repo_type, repo_id, revision])

def _lock_url(url):
    return native__lock("url", [url])

def _lock_prefix(url):
    return native__lock("prefix", [url])

_LOCK = struct(hub = _lock_hub, url = _lock_url, prefix = _lock_prefix)

def _invoke(implementation, call):
    text, artifacts = call
    given = json.decode(text)
    result = implementation(struct(
        label = struct(**given["label"]),
        attr = struct(**{name: _attribute(shape, value, artifacts) for name, shape, value in given["attrs"]}),
        actions = struct(run = _run),
        expand = _expand,
        lock = _LOCK,
    ))
    if type(result) != "list" and type(result) != "tuple":
        result = [result]
    answer = []
    artifacts = []
    for info in result:
        if type(info) != "struct" or not hasattr(info, "provider__"):
            native__bad_value("", "return", type(info))
        fields = {}
        for name in dir(info):
            if name != "provider__":
                fields[name] = _given(name, getattr(info, name), artifacts)
        answer.append([info.provider__, fields])
    return [json.encode(answer), artifacts]
"""
