"""What a sweep is: parameters, values, search space, method."""
