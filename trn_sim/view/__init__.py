"""Views of a result: text, JSON, traces.  They read a profile or a program and compute nothing about the machine.

    report          what every view is: text() for people, json() for programs
    profile_report  the profile of one kernel run
    listing         disassembly of a program
    timeline        tracks and slices of a profile, the common ground of the two trace formats:
    perfetto        Perfetto's protobuf format, for https://ui.perfetto.dev
    chrome          the JSON format of chrome://tracing, for everything else that draws time lines
    trace           a file with either of them

A new view is a new file here that reads :class:`perf_model.profile.Profile`.
"""
