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

# Cores and GiB of one host of each TPU generation.
_TPU_HOSTS = {"v4": (240, 400), "v5litepod": (112, 192), "v5p": (208, 448), "v6e": (180, 720)}

def tpu(variant, slice_count = 1, cpu = None, ram = None, disk = "50g", preemptible = True, regions = []):
    """`slice_count` TPU slices such as `v4-128`; where `cpu` and `ram` are left out, half of each host's."""
    host = _TPU_HOSTS.get(variant.split("-")[0])
    if host == None:
        fail("`%s` is not a TPU: it starts with one of %s" % (variant, ", ".join(_TPU_HOSTS.keys())))
    if slice_count < 1:
        fail("`slice_count` is %d: it must be at least 1" % slice_count)
    return {
        "device": "tpu",
        "variant": variant,
        "slice_count": slice_count,
        "cpu": float(host[0] // 2 if cpu == None else cpu),
        "ram": "%dg" % (host[1] // 2) if ram == None else ram,
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
