"""`python -m deconvoy`."""

from deconvoy.cli import main

if __name__ == "__main__":
    main()
