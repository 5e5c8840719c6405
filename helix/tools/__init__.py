"""Tools as a program declares them: schema, types, targets and effects. `helix/executor/tools` runs them."""
