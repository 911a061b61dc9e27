"""Small programs that must behave the same after a cold and after a warm start.

Each prints what it finds. What differs between any two jobs (PIDs, ids, times) is not printed.
"""

from __future__ import annotations

SCRIPTS = {
    "arguments": "import sys; print(sys.argv, getattr(sys, 'orig_argv', [])[1:])",
    "main_module": """
import sys
print(sorted(k for k in globals() if k != 'sys'), __name__, __file__, __package__, __spec__)
print(type(__loader__).__name__, __doc__, __cached__, sys.modules['__main__'].__dict__ is globals())
print(__annotations__)
""",
    "docstring": '"""A docstring."""\nprint(__doc__)',
    "path": "import sys; print(sys.path)",
    "folder": "import os; print(os.getcwd()); print(sorted(os.listdir('.'))[:3])",
    "environment": """
import os, ctypes
differs = ('STOKER_', 'CUDA_VISIBLE', 'NVIDIA_VISIBLE', 'HIP_VISIBLE')
print(sorted(pair for pair in os.environ.items() if not pair[0].startswith(differs)))
libc = ctypes.CDLL(None)
libc.getenv.restype = ctypes.c_char_p
print(libc.getenv(b'CUDA_VISIBLE_DEVICES') == os.environb[b'CUDA_VISIBLE_DEVICES'])
print('STOKER_JOB_ID' in os.environ, libc.getenv(b'STOKER_JOB_ID') is not None)
""",
    "child_environment": """
import os, subprocess
out = subprocess.run(['env'], capture_output=True, text=True).stdout.splitlines()
differs = ('STOKER_', 'CUDA_VISIBLE', 'NVIDIA_VISIBLE', 'HIP_VISIBLE')
print(sorted(line for line in out if not line.startswith(differs)))
print(any(line == 'CUDA_VISIBLE_DEVICES=' + os.environ['STOKER_GPUS'] for line in out))
print(any(line.startswith('STOKER_PROCESS_TAGS=') for line in out))
""",
    "success": "pass",
    "exit_code": "raise SystemExit(7)",
    "exit_text": "import sys; sys.exit('no data')",
    "exit_none": "import sys; sys.exit(None)",
    "exit_of_the_system": "import os; print('x', flush=True); os._exit(9)",
    "exception": "def f():\n    return 1 / 0\nf()",
    "chained_exception": """
def f():
    try:
        {}['key']
    except KeyError as error:
        raise ValueError('outer') from error
f()
""",
    "syntax_error": "print('before'\nx = = 1",
    "missing_import": "import there_is_no_such_module",
    "interrupt": "raise KeyboardInterrupt",
    "own_excepthook": """
import sys
sys.excepthook = lambda kind, error, trace: print('hook', kind.__name__, error, trace.tb_lineno)
raise ValueError('shown by the hook')
""",
    "recursion": "def f(): f()\ntry:\n    f()\nexcept RecursionError: print('recursion')",
    "killed": "import os, signal; print('x', flush=True); os.kill(os.getpid(), signal.SIGKILL)",
    "abort": "import os; os.abort()",
    "segmentation_fault": "import ctypes; ctypes.string_at(0)",
    "faulthandler": "import faulthandler; faulthandler.enable(); print(faulthandler.is_enabled())",
    "unflushed_output": "import sys; sys.stdout.write('not flushed'); sys.stderr.write('err\\n')",
    "streams": """
import sys
for one in (sys.stdin, sys.stdout, sys.stderr):
    print(one.name, one.mode, one.encoding, one.errors, one.line_buffering, one.isatty(),
          one.fileno(), one is getattr(sys, '__' + one.name.strip('<>') + '__'))
""",
    "stdin": "import sys; print(repr(sys.stdin.read()))",
    "at_exit": """
import atexit, sys
atexit.register(print, 'first')
atexit.register(print, 'second')
print('body')
""",
    "failing_at_exit": "import atexit; atexit.register(lambda: 1 / 0); print('body')",
    "finalizer": "class A:\n    def __del__(self): print('deleted')\na = A()",
    "finalizer_in_a_cycle": """
class A:
    def __del__(self): print('deleted')
a = A()
a.self = a
""",
    "finalizer_in_an_own_module": """
import neighbor
class A:
    def __del__(self): print('deleted', neighbor.__name__)
neighbor.a = A()
""",
    "weak_finalizer": """
import weakref
class A: pass
a = A()
weakref.finalize(a, print, 'finalized')
""",
    "unclosed_file": "file = open('/dev/stdout', 'w'); file.write('not flushed')",
    "unclosed_binary_file": "file = open(1, 'wb', closefd=False); file.write(b'not flushed')",
    "unclosed_file_in_a_cycle": "a = [open('/dev/stdout', 'w')]; a[0].write('x'); a.append(a)",
    "unclosed_file_of_a_warm_module": """
import heavy
heavy.file = open('/dev/stdout', 'a')
heavy.file.write('not flushed')
""",
    "output_of_c": "import ctypes; ctypes.CDLL(None).puts(b'from C')",
    "full_output": """
import os
os.dup2(os.open('/dev/full', os.O_WRONLY), 1)
print('lost')
""",
    "closed_output": "import sys; print('x'); sys.stdout.close()",
    "large_exit_code": "raise SystemExit(300)",
    "negative_exit_code": "raise SystemExit(-1)",
    "exit_in_a_thread": """
import sys, threading
threading.Thread(target=sys.exit, args=(3,)).start()
print('main')
""",
    "signals": """
import signal
for number in (signal.SIGINT, signal.SIGTERM, signal.SIGPIPE, signal.SIGCHLD, signal.SIGHUP):
    found = signal.getsignal(number)
    print(number, getattr(found, '__name__', found))
print(sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])))
""",
    "session": """
import os
print(os.getsid(0) == os.getpid(), os.getpgrp() == os.getpid(), oct(os.umask(0)))
import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE), os.nice(0))
""",
    "descriptors": """
import os
print(sorted(int(n) for n in os.listdir('/proc/self/fd') if int(n) < 100))
for n in range(3): print(os.get_inheritable(n))
""",
    "inherited_descriptors": """
import subprocess
print(subprocess.check_output(['ls', '/proc/self/fd'], text=True, close_fds=False))
""",
    "command_line": "print(open('/proc/self/cmdline').read().rstrip(chr(0)).split(chr(0)))",
    "program_name": "print(open('/proc/self/comm').read(), __import__('sys').executable)",
    "flags": "import sys; print(sys.flags, sys.warnoptions, sys._xoptions)",
    "threads": """
import threading
found = []
threads = [threading.Thread(target=found.append, args=(n,)) for n in range(4)]
[t.start() for t in threads]; [t.join() for t in threads]
print(sorted(found), threading.main_thread() is threading.current_thread())
print(threading.active_count())
""",
    "thread_after_main": """
import threading, time
threading.Thread(target=lambda: (time.sleep(0.05), print('late'))).start()
print('main ends')
""",
    "daemon_thread": """
import threading, time
threading.Thread(target=time.sleep, args=(60,), daemon=True).start()
print('main ends')
""",
    "fork": """
import os
pid = os.fork()
if not pid: os._exit(3)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))
""",
    "fork_that_returns": """
import os, sys
pid = os.fork()
if not pid: sys.exit(4)
print(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]), flush=True)
""",
    "multiprocessing_fork": """
import multiprocessing as mp
if __name__ == '__main__':
    with mp.get_context('fork').Pool(2) as pool: print(pool.map(abs, [-1, -2, 3]))
""",
    "multiprocessing_spawn": """
import multiprocessing as mp
def double(x): return 2 * x
if __name__ == '__main__':
    with mp.get_context('spawn').Pool(2) as pool: print(pool.map(double, [1, 2, 3]))
    print(mp.current_process().name, mp.parent_process())
""",
    "multiprocessing_forkserver": """
import multiprocessing as mp
def double(x): return 2 * x
if __name__ == '__main__':
    with mp.get_context('forkserver').Pool(2) as pool: print(pool.map(double, [1, 2, 3]))
""",
    "process_pool": """
from concurrent.futures import ProcessPoolExecutor
def double(x): return 2 * x
if __name__ == '__main__':
    with ProcessPoolExecutor(2) as pool: print(list(pool.map(double, range(4))))
""",
    "asyncio": """
import asyncio
async def main():
    process = await asyncio.create_subprocess_exec('echo', 'hi', stdout=asyncio.subprocess.PIPE)
    print(await process.stdout.read(), await process.wait())
asyncio.run(main())
""",
    "subprocess": "import subprocess; print(subprocess.run(['sh', '-c', 'exit 5']).returncode)",
    "own_module": "import neighbor; print(neighbor.VALUE, neighbor.__file__)",
    "heavy_module": "import heavy; print(heavy.VALUE, heavy.__file__, heavy.__name__)",
    "relative_import": "try:\n    from . import x\nexcept ImportError as error: print(error)",
    "pickling": "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))))",
    "dataclass": "import dataclasses\n@dataclasses.dataclass\nclass A:\n    x: int = 1\nprint(A())",
    "inspect": "import inspect\ndef f(): return 1\nprint(inspect.getsource(f), inspect.getfile(f))",
    "warnings": "import warnings; warnings.warn('careful')",
    "logging": "import logging; logging.warning('warned'); logging.error('x')",
    "locale": "import locale, sys; print(locale.getlocale(), sys.getfilesystemencoding())",
    "encoding": "print('\\xe4\\u4e16')",
    "close_all": "import os; os.closerange(3, 1000); print('closed')",
    "gc": "import gc; print(gc.isenabled(), gc.get_threshold()); gc.collect()",
    "exec": "import os, sys; os.execv(sys.executable, [sys.executable, '-c', 'print(1)'])",
    "imports_main": "import __main__; x = 1; print(__main__.x)",
    "runpy": "import runpy; print(runpy.run_path('neighbor.py')['VALUE'])",
    "time_zone": "import time; print(time.tzname)",
}  # fmt: skip

# The command after `python`, by name: other forms than `python script.py`.
COMMANDS = {
    "module": ["-m", "package.part", "a", "b"],
    "package": ["-m", "package", "--flag"],
    "missing_module": ["-m", "there_is_no_such_module"],
    "failing_module": ["-m", "package.failing"],
    "module_of_the_library": ["-m", "json.tool", "data.json"],
    "code": ["-c", "import sys; print(sys.argv, sys.path[0], __name__, __file__ if 0 else 1)", "x"],
    "failing_code": ["-c", "raise ValueError('x')"],
    "failing_function_of_code": ["-c", "def f():\n    1 / 0\nf()"],
    "indented_code": ["-c", "  print(1)\n  if 1:\n    print(2)"],
    "wrong_code": ["-c", "x = = 1"],
    "unbuffered": ["-u", "run_streams.py"],
    "optimized": ["-O", "-B", "run_flags.py"],
    "isolated": ["-I", "run_path.py"],
    "without_its_folder": ["-P", "run_path.py"],
    "options_with_values": ["-W", "ignore", "-X", "utf8", "run_flags.py"],
    "script_in_a_folder": ["package/inner.py", "1"],
    "script_by_its_path": ["./run_arguments.py", "a b", "*"],
    "linked_script": ["link.py"],
    "missing_script": ["there_is_no_such.py"],
    "folder_as_program": ["package"],
    "zip_as_program": ["program.zip"],
    "no_permission": ["unreadable.py"],
    "shadowed_module": ["shadow/program.py"],
    "absolute_script": ["FOLDER/run_arguments.py"],
}
