"""``python -m aioproducer``: the same as the command ``aioproducer``."""

from aioproducer.cli.main import main

if __name__ == "__main__":
    raise SystemExit(main())
