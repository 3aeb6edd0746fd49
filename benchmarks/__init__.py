"""Speed and accuracy of the metrics beside the formula as the paper writes it."""
