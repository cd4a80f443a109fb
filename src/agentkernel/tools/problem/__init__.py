"""Problems at hand: loaded modules, their inputs and their captured graphs."""
