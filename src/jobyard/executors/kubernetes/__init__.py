"""Jobs as Kubernetes objects. So far the pure half: job -> objects, and foreign states -> ours; nothing here calls."""
