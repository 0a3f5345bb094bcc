"""The hands: one module or package per place where jobs run. They tell what they see; the engine, what it means."""
