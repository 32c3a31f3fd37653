import time, pytest
from tests.test_security import *
from tests.test_security import documented_uses
@pytest.mark.parametrize("guarantee", ["exactly_once","at_least_once"])
@pytest.mark.parametrize("i", range(len(documented_uses())))
def test_x(secure, deployment, i, guarantee):
    deployment.config["delivery"]["guarantee"]=guarantee
    deployment.config["key"]={"from":"json","field":"email"}
    rights=documented(deployment)
    gone=rights.pop(i)
    secure.allow(rights)
    deployment.feed(keyed([*range(40), *range(20)], 2))
    deployment.feed([(0,b"k",b"{bad",[],None)])
    w=deployment.start()
    end=time.time()+9
    while time.time()<end and w.process.poll() is None: time.sleep(.1)
    rc=w.process.poll()
    if rc is None: w.kill()
    text=(deployment.directory/"worker.log").read_text()
    print("=====",guarantee,gone.resource,gone.operation,"rc",rc, deployment.sink, deployment.source)
    for l in text.splitlines():
        print("   ",l[:330])
