from jobyard.python_api.asynchronous import AsyncYard as AsyncYard
from jobyard.python_api.executor import YardExecutor as YardExecutor
from jobyard.python_api.function_job import FunctionJob as FunctionJob
from jobyard.python_api.futures import YardFuture as YardFuture
from jobyard.python_api.futures import as_completed as as_completed
from jobyard.python_api.futures import wait as wait
from jobyard.python_api.job import Job as Job
from jobyard.python_api.yard import Yard as Yard

__version__: str
