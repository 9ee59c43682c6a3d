"""Precision policies, in one spelling."""

# jmp's names of what a policy may hold; `half` depends on the machine, and float64 needs a switch that is off.
_DTYPES = {
    "bf16": "bfloat16",
    "bfloat16": "bfloat16",
    "f16": "float16",
    "float16": "float16",
    "full": "float32",
    "f32": "float32",
    "float32": "float32",
}
_ROLES = {
    "p": "params",
    "params": "params",
    "c": "compute",
    "compute": "compute",
    "o": "output",
    "output": "output",
}

def _dtype(name, mp):
    if name not in _DTYPES:
        fail("`mp` is `%s`: `%s` is no dtype it may hold (one of %s)" % (mp, name, ", ".join(_DTYPES.keys())))
    return _DTYPES[name]

def canonical_mp(mp):
    """The one spelling of a precision policy: `p=f32,c=bf16` means output in bfloat16 too, as jmp reads it."""
    if "=" not in mp:
        dtype = _dtype(mp, mp)
        roles = {"params": dtype, "compute": dtype, "output": dtype}
    else:
        roles = {}
        for part in mp.split(","):
            role, _, name = part.partition("=")
            if role not in _ROLES:
                fail("`mp` is `%s`: `%s` is none of `p`, `c` and `o`" % (mp, role))
            roles[_ROLES[role]] = _dtype(name, mp)
        params = roles.get("params", "float32")
        compute = roles.get("compute", params)
        roles = {"params": params, "compute": compute, "output": roles.get("output", compute)}
    return "params=%s,compute=%s,output=%s" % (roles["params"], roles["compute"], roles["output"])
