pragma application_id = 1634430050;
pragma user_version = 1;
BEGIN TRANSACTION;
CREATE TABLE certificates (sha256 text not null unique, value text not null);
INSERT INTO "certificates" VALUES('eab09ddf23cdd673bc36c6679e253e26a2d1393e40b08f427a03a24161fa5310','{
  "basis": "estimated",
  "candidate_sha256": "88348571c959ee0b105d4a4a48e7e1ca0ff5e0c689700c5a7e6f9d21a9f0dc46",
  "candidate_source": "class ModelNew: ...  # 0\n",
  "created": "2026-11-20T02:00:00+00:00",
  "format": 1,
  "judge_sha256": "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
  "plan": null,
  "problem": {
    "class_name": "Model",
    "init_source": "",
    "name": "plus",
    "origin": "file",
    "path": "plus.py",
    "shape_sets": [
      {
        "inputs": [
          {
            "dtype": "float32",
            "name": "x",
            "shape": [
              4,
              8
            ]
          }
        ]
      }
    ],
    "source": "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n"
  },
  "problem_sha256": "f153d557d16998dd29334c87c2a4919a66119138ca66ce256600304ad28a1219",
  "profile": null,
  "reason": "",
  "run": "plus-1",
  "seeds": 1,
  "signature": null,
  "status": "verified",
  "target": "h200",
  "unsigned": "",
  "verdict": {
    "accepted": true,
    "candidate": "88348571c959ee0b105d4a4a48e7e1ca0ff5e0c689700c5a7e6f9d21a9f0dc46",
    "cases": [
      {
        "distribution": "normal",
        "eager_element_error": 2e-07,
        "eager_norm_error": 2e-07,
        "element_error": 1e-07,
        "label": "primary",
        "largest_error": 0.0,
        "norm_error": 1e-07,
        "passed": true,
        "seed": 0,
        "shapes": "x float32[4, 8]"
      }
    ],
    "declared_sizes": false,
    "device": "cpu",
    "eval_only": false,
    "failure": null,
    "gate": "accepted",
    "interpreted": true,
    "kernelbench": null,
    "launches": [
      "k"
    ],
    "notes": [],
    "policy": "mixed",
    "precision": "strict",
    "problem": "f153d557d16998dd29334c87c2a4919a66119138ca66ce256600304ad28a1219",
    "repeatable": null,
    "sandbox": "",
    "seconds": 0.5,
    "seed": 0
  },
  "versions": {
    "agentkernel": "0.1.0",
    "cuda": null,
    "driver": null,
    "platform": "test",
    "python": "3.11",
    "torch": "2.13.0",
    "triton": "3.9.0"
  }
}
');
INSERT INTO "certificates" VALUES('9300833dc6b7bbfa2ce8bfec19f60f4e17a8fb9a82544ca4b6fd98af7f45daa7','{
  "basis": "estimated",
  "candidate_sha256": "33b7af1b3c5413d5f1bf2485673c0e4587ac7aa53e1b62ab31ec697f147753b7",
  "candidate_source": "class ModelNew: ...  # 1\n",
  "created": "2026-11-20T02:00:01+00:00",
  "format": 1,
  "judge_sha256": "ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff",
  "plan": null,
  "problem": {
    "class_name": "Model",
    "init_source": "",
    "name": "plus",
    "origin": "file",
    "path": "plus.py",
    "shape_sets": [
      {
        "inputs": [
          {
            "dtype": "float32",
            "name": "x",
            "shape": [
              4,
              8
            ]
          }
        ]
      }
    ],
    "source": "import torch\nfrom torch import nn\n\n\nclass Model(nn.Module):\n    def forward(self, x):\n        return x + 1\n\n\ndef get_inputs():\n    return [torch.randn(4, 8)]\n"
  },
  "problem_sha256": "f153d557d16998dd29334c87c2a4919a66119138ca66ce256600304ad28a1219",
  "profile": null,
  "reason": "",
  "run": "plus-1",
  "seeds": 1,
  "signature": null,
  "status": "verified",
  "target": "h200",
  "unsigned": "",
  "verdict": {
    "accepted": true,
    "candidate": "33b7af1b3c5413d5f1bf2485673c0e4587ac7aa53e1b62ab31ec697f147753b7",
    "cases": [
      {
        "distribution": "normal",
        "eager_element_error": 2e-07,
        "eager_norm_error": 2e-07,
        "element_error": 1e-07,
        "label": "primary",
        "largest_error": 0.0,
        "norm_error": 1e-07,
        "passed": true,
        "seed": 0,
        "shapes": "x float32[4, 8]"
      }
    ],
    "declared_sizes": false,
    "device": "cpu",
    "eval_only": false,
    "failure": null,
    "gate": "accepted",
    "interpreted": true,
    "kernelbench": null,
    "launches": [
      "k"
    ],
    "notes": [],
    "policy": "mixed",
    "precision": "strict",
    "problem": "f153d557d16998dd29334c87c2a4919a66119138ca66ce256600304ad28a1219",
    "repeatable": null,
    "sandbox": "",
    "seconds": 0.5,
    "seed": 0
  },
  "versions": {
    "agentkernel": "0.1.0",
    "cuda": null,
    "driver": null,
    "platform": "test",
    "python": "3.11",
    "torch": "2.13.0",
    "triton": "3.9.0"
  }
}
');
CREATE TABLE jobs (
        key text not null unique, kind text not null, value text not null,
        started text not null, finished text not null, worker text not null);
INSERT INTO "jobs" VALUES('cut/bert','cut','{"regions": 3}','','2026-11-23T04:28:05+00:00','');
CREATE TABLE kernels (
        id integer primary key, sha256 text not null, signature text not null, gpu text not null,
        torch text not null, triton text not null, precision text not null, dtype text not null,
        problem text not null, source text not null, parameters text not null,
        certificate text not null references certificates (sha256),
        signer text not null, judge_sha256 text not null, run text not null, created text not null,
        basis text not null, speedup real, speedup_low real, time_us real, baseline_us real,
        verified text not null, withdrawn text, withdrawn_at text not null default '',
        unique (sha256, signature, gpu, torch, triton, precision, dtype));
INSERT INTO "kernels" VALUES(1,'88348571c959ee0b105d4a4a48e7e1ca0ff5e0c689700c5a7e6f9d21a9f0dc46','5feceb66ffc86f38','NVIDIA H200','2.13.0','3.9.0','strict','float32','plus','class ModelNew: ...  # 0
','["weight", "bias"]','eab09ddf23cdd673bc36c6679e253e26a2d1393e40b08f427a03a24161fa5310','','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','plus-1','2026-11-20T02:00:00+00:00','estimated',2.0,1.9,10.0,20.0,'',NULL,'');
INSERT INTO "kernels" VALUES(2,'33b7af1b3c5413d5f1bf2485673c0e4587ac7aa53e1b62ab31ec697f147753b7','6b86b273ff34fce1','NVIDIA H200','2.13.0','3.9.0','strict','float32','plus','class ModelNew: ...  # 1
','["weight", "bias"]','9300833dc6b7bbfa2ce8bfec19f60f4e17a8fb9a82544ca4b6fd98af7f45daa7','','ffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffffff','plus-1','2026-11-20T02:00:01+00:00','measured',NULL,NULL,NULL,20.0,'','wrong at 3 x 5','2026-11-23T04:28:05+00:00');
CREATE TABLE night_models (
        night text not null references nights (id), number integer not null, name text not null,
        vs_eager real, vs_compile real, estimated real, value text not null,
        unique (night, number));
INSERT INTO "night_models" VALUES('n1',0,'bert',2.0,2.0,NULL,'{"name":"bert","weight":1.0,"basis":"measured","form":"eager","timings":{},"failed":{},"vs_eager":{"value":2.0,"low":2.0,"high":2.0,"low99":null,"high99":null,"call":null},"vs_compile":{"value":2.0,"low":2.0,"high":2.0,"low99":null,"high99":null,"call":null},"estimated_eager_us":null,"estimated_us":null,"estimated_speedup":null,"verified":null,"worst_error":null,"eager_error":null,"swapped":0,"dropped":[],"time_in_regions":0.0,"error":null}');
CREATE TABLE night_regions (
        night text not null references nights (id), number integer not null,
        signature text not null, status text not null, value text not null,
        unique (night, number));
INSERT INTO "night_regions" VALUES('n1',0,'5feceb66ffc86f38','new','{"signature":"5feceb66ffc86f38","name":"mlp","ops":["aten.addmm","aten.gelu"],"shapes":"x float32[4, 8]","uses":[{"model":"bert","path":"layers.0.mlp","calls":1,"parameters":[]}],"basis":"measured","share":0.1,"headroom":0.5,"eager_us":20.0,"bound_us":10.0,"status":"new","reason":"","sha256":null,"parent":null,"run":null,"time_us":null,"speedup":null,"speedup_low":null,"spent_s":0.0}');
CREATE TABLE nights (
        id text not null unique, zoo text not null, started text not null, finished text,
        green integer not null, basis text not null, value text not null);
INSERT INTO "nights" VALUES('n1','tiny','2026-11-20T02:00:00+00:00','2026-11-20T02:10:00+00:00',1,'measured','{"format":1,"id":"n1","zoo":"tiny","zoo_sha256":"0000000000000000000000000000000000000000000000000000000000000000","target":"h200","gpu":"NVIDIA H200","workers":1,"started":"2026-11-20T02:00:00+00:00","finished":"2026-11-20T02:10:00+00:00","versions":{"agentkernel":"0.1.0","python":"3.11","torch":"2.13.0","triton":"3.9.0","platform":"test","cuda":null,"driver":null},"budget_s":null,"wall_s":0.0,"gpu_s":0.0,"models":[],"regions":[],"lost":[]}');
CREATE INDEX kernels_by_key
        on kernels (signature, gpu, torch, triton, precision, dtype, created);
CREATE INDEX nights_by_zoo on nights (zoo, started);
COMMIT;
