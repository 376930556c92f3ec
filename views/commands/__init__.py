"""The verbs of the command line, one module a verb or family of verbs.

`hpo.cli` parses the words and calls `do_VERB(args)` of the module that its table names; nothing
here is imported before. A verb returns its exit code, raises `HpoError` for a user's mistake,
prints results on stdout and everything else on stderr.

    from a study file   init_check_run, import_export, train (train, confirm, tune-lanes)
    about a study       read_study (top, show, query, list, best), plot_report, importance,
                        compare, replay, stop_rm, watch_serve
    about a policy      eval_policy; optical networks: eval_network, eval_candidates
    about this package  catalogue (knobs, envs, schema)
    shared              watched_run, by run and train
"""
