"""`python -m hog`."""

from stoker.compat.hog import main

if __name__ == "__main__":
    main()
