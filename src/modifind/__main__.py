"""``python -m modifind`` is the command line."""

from modifind.cli.app import main

if __name__ == "__main__":  # workers that are spawned import this module too
    main()
