"""`python -m forensics`: the same as the command `forensics`."""

from forensics.cli import main

if __name__ == "__main__":
    main()
