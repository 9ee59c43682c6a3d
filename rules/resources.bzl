"""What an attempt needs, as a value for `resources`. It never bears identity."""

def cpu(cpu = 1, ram = "4g", disk = "64g", preemptible = True, regions = []):
    """A machine with `cpu` cores."""
    return {
        "device": "cpu",
        "cpu": float(cpu),
        "ram": ram,
        "disk": disk,
        "preemptible": preemptible,
        "regions": regions,
    }

def tpu(variant, slice_count = 1, cpu = None, ram = None, disk = "50g", preemptible = True, regions = []):
    """`slice_count` TPU slices such as `v4-128`. Several types in a list: any of them will do. `cpu` and `ram` are those of each host, by default half of what it has."""
    if slice_count < 1:
        fail("`slice_count` is %d: it must be at least 1" % slice_count)
    variants = [variant] if type(variant) == "string" else variant
    if not variants:
        fail("`tpu` needs a type, such as `v4-128`")
    return {
        "device": "tpu",
        "variant": variants[0],
        "alternatives": variants[1:],
        "slice_count": slice_count,
        "cpu": None if cpu == None else float(cpu),
        "ram": ram,
        "disk": disk,
        "preemptible": preemptible,
        "regions": regions,
    }

def gpu(variant, count = 1, cpu = 1, ram = "4g", disk = "64g", preemptible = True, regions = []):
    """`count` GPUs such as `H100` in one machine."""
    if count < 1:
        fail("`count` is %d: it must be at least 1" % count)
    return {
        "device": "gpu",
        "variant": variant,
        "count": count,
        "cpu": float(cpu),
        "ram": ram,
        "disk": disk,
        "preemptible": preemptible,
        "regions": regions,
    }
