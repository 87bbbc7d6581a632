"""From a captured graph to the steps of a host program, by way of Torch-MLIR."""
