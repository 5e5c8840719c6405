"""Results that are kept between runs, and the journal that lets a run be resumed (contract 5-10).

`keys` says what a call is known by, `results` is the store, `journal` and `runs` are what is kept of one run, and
`known` joins them for the dispatcher.
"""
