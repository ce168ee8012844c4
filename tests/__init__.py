from tests import shapes as shapes  # jaxtyping imports `tests` and looks for `shapes.check` in it
