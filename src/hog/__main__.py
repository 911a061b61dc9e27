"""`python -m hog`."""

from stoker.compat.hog.main import main

if __name__ == "__main__":
    main()
